// SPDX-License-Identifier: GPL-2.0-or-later

// What LAMMPS loads at its start: registers the pair style, where this process is what the plugin
// was compiled for.
//
// The classes of LAMMPS change from release to release and from update to update, and the handles
// of MPI are numbers in one family and pointers in the other. Code that was compiled for another of
// them crashes at its first call. So this file uses C interfaces alone, and compares before
// anything of either is touched.

#include "loader.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

// The C interface between LAMMPS and a plugin, as documented on LAMMPS's page "Writing plugins".
// Declared here because installations of LAMMPS do not carry the header.
extern "C" {

struct lammpsplugin_t {
  const char *version;    // release of LAMMPS that the plugin was compiled for, as "22 Jul 2025"
  const char *style;      // category: "pair"
  const char *name;       // name of the style in the input
  const char *info;       // one line for the log
  const char *author;
  void *(*creator)(void *lmp);    // of pair styles; other styles have more arguments
  void *handle;
};

using lammpsplugin_regfunc = void(lammpsplugin_t *, void *lmp);
}

namespace {

using namespace pair_pwmlff;

using Settings = int(void *lmp, const char *name);

// LAMMPS::git_descriptor(), a static function: its name and call are as stable as one in C. (The C
// interface's lammps_extract_global returns the address of this function in place of the text.)
constexpr const char *DESCRIPTOR = "_ZN9LAMMPS_NS6LAMMPS14git_descriptorEv";

// What the plugin's own calls of this function would reach; null where the process has none.
template <class Function> Function *in_process(const char *name)
{
  return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}

int setting(void *lmp, const char *name)
{
  const auto extract = in_process<Settings>("lammps_extract_setting");
  return extract ? extract(lmp, name) : -1;
}

// "22 Jul 2025" for 20250722
std::string release_date(int version)
{
  static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const int month = version / 100 % 100;
  if (month < 1 || month > 12) return std::to_string(version);
  return std::to_string(version % 100) + " " + months[month - 1] + " " +
         std::to_string(version / 10000);
}

// "Update 4" for stable_22Jul2025_update4, empty for stable_22Jul2025. False where the descriptor
// is of no release: LAMMPS was compiled from an archive, or from something between two releases.
bool update_of(const char *descriptor, std::string &update)
{
  if (!descriptor || std::strncmp(descriptor, "stable_", 7) != 0) return false;
  const std::string tag(descriptor);
  if (tag.find('-') != std::string::npos)
    return false;    // stable_...-12-gabcdef: commits after it
  const auto mark = tag.find("_update");
  update = mark == std::string::npos ? "" : "Update " + tag.substr(mark + 7);
  return true;
}

void compare_version(void *lmp, std::string &text)
{
  const auto version = in_process<int(void *)>("lammps_version");
  if (!version) return;
  const std::string date = release_date(version(lmp)), expected = PWMLFF_LAMMPS_VERSION;
  const auto descriptor = in_process<const char *()>(DESCRIPTOR);
  std::string update;
  const bool known = descriptor && update_of(descriptor(), update);
  if (date == expected && (!known || update == PWMLFF_LAMMPS_UPDATE)) return;
  const auto full = [](const std::string &release, const std::string &its_update) {
    return release + (its_update.empty() ? "" : " - " + its_update);
  };
  text += "; LAMMPS is " + full(date, known ? update : "") + ", expected " +
          full(expected, PWMLFF_LAMMPS_UPDATE);
}

void compare_sizes(void *lmp, std::string &text)
{
  const int tagint = setting(lmp, "tagint"), bigint = setting(lmp, "bigint");
  if (tagint <= 0 || bigint <= 0) return;
  const std::string found = bigint == 4 ? "SMALLSMALL" : tagint == 8 ? "BIGBIG" : "SMALLBIG";
  if (found == PWMLFF_LAMMPS_SIZES) return;
  text += "; integer sizes are " + found + ", expected " PWMLFF_LAMMPS_SIZES;
}

void compare_mpi(std::string &text)
{
  const std::string expected = PWMLFF_MPI_FAMILY;
  const auto has_mpi = in_process<int()>("lammps_config_has_mpi_support");
  if (expected.empty()) return;
  if (has_mpi && !has_mpi()) {
    text += "; LAMMPS was built without MPI, expected " + expected;
    return;
  }
  const auto describe = in_process<int(char *, int *)>("MPI_Get_library_version");
  if (!describe) return;
  char words[8192];    // more than any MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  if (describe(words, &length) != 0) return;
  const bool open_mpi = std::strstr(words, "Open MPI") != nullptr;
  if (open_mpi == (expected == "Open MPI")) return;
  std::string first;    // of several lines; with one blank where there are many
  for (const char *c = words; *c && *c != '\n' && *c != ','; ++c) {
    const bool blank = *c == ' ' || *c == '\t';
    if (!blank || (!first.empty() && first.back() != ' ')) first += blank ? ' ' : *c;
  }
  text += "; MPI is " + first + ", expected " + expected;
}

// What differs between this process and what the plugin was compiled for, in words; empty where
// nothing does. What the process cannot be asked (its program does not export the function) is not
// a difference.
std::string difference_from_process(void *lmp)
{
  std::string text;
  compare_version(lmp, text);
  compare_sizes(lmp, text);
  compare_mpi(text);
  return text.empty() ? text : text.substr(2);
}

// Write a line to stderr, on the first rank where the ranks can be told apart, else on all.
void print_once(void *lmp, const std::string &text)
{
  if (setting(lmp, "universe_rank") > 0) return;
  std::fprintf(stderr, "%s\n", text.c_str());
}

// Makes an instance of the style; null until the library with it is open.
LoadPair *load_pair = nullptr;

// Open that library; returns why it cannot be opened.
std::string open_loader(const std::filesystem::path &folder)
{
  void *library = dlopen((folder / LOADER_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  load_pair = reinterpret_cast<LoadPair *>(library ? dlsym(library, LOADER_SYMBOL) : nullptr);
  if (load_pair) return {};
  const char *reason = dlerror();
  return reason ? reason : std::string("no ") + LOADER_SYMBOL + " is in it";
}

// What `pwmlff run` has started ends with the process of MPICH's mpirun that has started it on this
// machine: nothing else ends it then, and it may wait for ever for a rank that is gone. (Other
// launchers start ranks from a thread, whose end the system would take for that of the process.)
void end_with_launcher()
{
  if (!std::getenv("PWMLFF_SUPERVISED")) return;
  std::string parent;
  std::getline(std::ifstream("/proc/" + std::to_string(getppid()) + "/comm") >> std::ws, parent);
  if (parent == "hydra_pmi_proxy") prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// Register the style under a name in the input.
template <const char *name> void add(void *lmp, void *handle, void *regfunc)
{
  static const std::string info = std::string("machine-learned potentials, pair_style ") + name;
  lammpsplugin_t plugin{};
  plugin.version = PWMLFF_LAMMPS_VERSION;
  plugin.style = "pair";
  plugin.name = name;
  plugin.info = info.c_str();
  plugin.author = "the pair_style pwmlff developers";
  plugin.creator = [](void *instance) { return load_pair(instance, name); };
  plugin.handle = handle;
  (*reinterpret_cast<lammpsplugin_regfunc *>(regfunc))(&plugin, lmp);
}

// Whether LAMMPS has a pair style of this name, other than one that a plugin has registered.
bool is_built_in(void *lmp, const std::string &name)
{
  const auto has_style = in_process<int(void *, const char *, const char *)>("lammps_has_style");
  const auto count = in_process<int()>("lammps_plugin_count");
  const auto name_of = in_process<int(int, char *, char *, int)>("lammps_plugin_name");
  if (!has_style || !has_style(lmp, "pair", name.c_str())) return false;
  for (int k = 0; count && name_of && k < count(); ++k) {
    char category[64], found[64];
    if (name_of(k, category, found, 64) && found == name) return false;
  }
  return true;
}

// As the inputs for MatPL, NEP_CPU and ML-PACE say.
constexpr char PWMLFF[] = "pwmlff", MATPL[] = "matpl", MATPL_DP[] = "matpl/dp",
               MATPL_NEP[] = "matpl/nep", NEP[] = "nep", PACE[] = "pace", GRACE_FS[] = "grace/fs";
// LAMMPS takes these with -sf kk.
constexpr char PWMLFF_KK[] = "pwmlff/kk", MATPL_KK[] = "matpl/kk", MATPL_DP_KK[] = "matpl/dp/kk",
               MATPL_NEP_KK[] = "matpl/nep/kk", NEP_KK[] = "nep/kk", PACE_KK[] = "pace/kk",
               GRACE_FS_KK[] = "grace/fs/kk";

// Register the style under a name of another program, if this LAMMPS does not have that program.
template <const char *name> void add_other(void *lmp, void *handle, void *regfunc)
{
  if (!is_built_in(lmp, name)) return add<name>(lmp, handle, regfunc);
  print_once(lmp, std::string("pair_style ") + name +
                      " is the one of this LAMMPS; pair_style pwmlff runs the same model files");
}

}    // namespace

// Called by LAMMPS when it loads pwmlffplugin.so. Where the two do not fit together it says so and
// registers nothing: an input without this style runs as before.
extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void *lmp, void *handle,
                                                                         void *regfunc)
{
  end_with_launcher();
  // Of a function that no other copy of this file in the process has in its place.
  const auto file = library_path(reinterpret_cast<const void *>(&open_loader));
  const auto warn = [&](const std::string &reason) {
    print_once(lmp, "WARNING: there is no pair_style pwmlff here, as " + reason);
  };
  const std::string difference = difference_from_process(lmp);
  if (!difference.empty()) {
    warn(file.string() + " was compiled for another LAMMPS or MPI: " + difference +
         ". Compile it for this one (pwmlff build --lammps DIR --mpi MPICXX, see "
         "docs/install.md), or use the lmp that it was compiled for");
    return;
  }
  const std::string error = open_loader(file.parent_path());
  if (!error.empty()) {
    warn((file.parent_path() / LOADER_LIBRARY).string() + " cannot be opened: " + error +
         ". Install the plugin again, with all its files (see docs/install.md)");
    return;
  }
  add<PWMLFF>(lmp, handle, regfunc);
  add<PWMLFF_KK>(lmp, handle, regfunc);
  add_other<MATPL>(lmp, handle, regfunc);
  add_other<MATPL_KK>(lmp, handle, regfunc);
  add_other<MATPL_DP>(lmp, handle, regfunc);
  add_other<MATPL_DP_KK>(lmp, handle, regfunc);
  add_other<MATPL_NEP>(lmp, handle, regfunc);
  add_other<MATPL_NEP_KK>(lmp, handle, regfunc);
  add_other<NEP>(lmp, handle, regfunc);
  add_other<NEP_KK>(lmp, handle, regfunc);
  add_other<PACE>(lmp, handle, regfunc);
  add_other<PACE_KK>(lmp, handle, regfunc);
  add_other<GRACE_FS>(lmp, handle, regfunc);
  add_other<GRACE_FS_KK>(lmp, handle, regfunc);
}
