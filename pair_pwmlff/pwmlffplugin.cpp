// SPDX-License-Identifier: GPL-2.0-or-later

#include "host.h"
#include "lammpsplugin.h"
#include "loader.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace {

using namespace pair_pwmlff;

// Path of this file, symbolic links followed, as what it needs lies beside the real one.
std::filesystem::path this_file()
{
  Dl_info info{};
  dladdr(reinterpret_cast<const void *>(&this_file), &info);
  std::error_code ignored;
  const auto real = std::filesystem::canonical(info.dli_fname, ignored);
  return real.empty() ? std::filesystem::path(info.dli_fname) : real;
}

// What makes an instance, once the library with it is open.
LoadPair *load_pair = nullptr;

// Open that library; returns why it cannot be opened.
std::string open_loader(const std::filesystem::path &folder)
{
  void *library = dlopen((folder / LOADER_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  load_pair = reinterpret_cast<LoadPair *>(library ? dlsym(library, LOADER_SYMBOL) : nullptr);
  if (load_pair) return {};
  const char *said = dlerror();
  return said ? said : std::string("no ") + LOADER_SYMBOL + " is in it";
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
  lammpsplugin_t plugin{};
  plugin.version = PWMLFF_LAMMPS_VERSION;
  plugin.style = "pair";
  plugin.name = name;
  plugin.info = "machine-learned potentials stored as TorchScript";
  plugin.author = "the pair_style pwmlff developers";
  plugin.creator.v1 = [](void *instance) { return load_pair(instance, name); };
  plugin.handle = handle;
  (*reinterpret_cast<lammpsplugin_regfunc *>(regfunc))(&plugin, lmp);
}

constexpr char PWMLFF[] = "pwmlff", MATPL[] = "matpl", MATPL_DP[] = "matpl/dp";

}    // namespace

// Called by LAMMPS when it loads pwmlffplugin.so. Where the two do not fit together it says so and
// registers nothing: an input without this style runs as before.
extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void *lmp, void *handle,
                                                                         void *regfunc)
{
  end_with_launcher();
  const auto file = this_file();
  const auto stay_out = [&](const std::string &reason) {
    say_once(lmp, "WARNING: there is no pair_style pwmlff here, as " + reason);
  };
  const std::string difference = difference_from_host(lmp);
  if (!difference.empty()) {
    stay_out(file.string() + " was compiled for another LAMMPS or MPI: " + difference +
             ". Compile it for this one (pwmlff build --lammps DIR --mpi MPICXX, see "
             "docs/install.md), or use the lmp that it was compiled for");
    return;
  }
  const std::string error = open_loader(file.parent_path());
  if (!error.empty()) {
    stay_out((file.parent_path() / LOADER_LIBRARY).string() + " cannot be opened: " + error +
             ". Install the plugin again, with all its files (see docs/install.md)");
    return;
  }
  add<PWMLFF>(lmp, handle, regfunc);
  add<MATPL>(lmp, handle, regfunc);    // as the inputs of MatPL's users say
  add<MATPL_DP>(lmp, handle, regfunc);
}
