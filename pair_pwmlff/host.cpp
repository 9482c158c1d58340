// SPDX-License-Identifier: GPL-2.0-or-later

#include "host.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace pair_pwmlff {
namespace {

using Settings = int(void *lmp, const char *name);

// LAMMPS::git_descriptor(), a static function: its name and call are as stable as one in C. The
// function of the C interface that should tell, lammps_extract_global, returns the address of this
// one in place of the text.
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

std::string full_version(const std::string &date, const std::string &update)
{
  return update.empty() ? date : date + " - " + update;
}

const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// "22 Jul 2025" for 20250722
std::string date_of(int version)
{
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
  const std::string date = date_of(version(lmp)), expected = PWMLFF_LAMMPS_VERSION;
  const auto descriptor = in_process<const char *()>(DESCRIPTOR);
  std::string update;
  const bool known = descriptor && update_of(descriptor(), update);
  if (date == expected && (!known || update == PWMLFF_LAMMPS_UPDATE)) return;
  text += "; LAMMPS is " + full_version(date, known ? update : "") + ", expected " +
          full_version(expected, PWMLFF_LAMMPS_UPDATE);
}

std::string sizes_of(int tagint, int bigint)
{
  if (bigint == 4) return "SMALLSMALL";
  return tagint == 8 ? "BIGBIG" : "SMALLBIG";
}

void compare_sizes(void *lmp, std::string &text)
{
  const int tagint = setting(lmp, "tagint"), bigint = setting(lmp, "bigint");
  if (tagint <= 0 || bigint <= 0) return;
  const std::string found = sizes_of(tagint, bigint);
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

}    // namespace

std::string difference_from_host(void *lmp)
{
  std::string text;
  compare_version(lmp, text);
  compare_sizes(lmp, text);
  compare_mpi(text);
  return text.empty() ? text : text.substr(2);
}

void say_once(void *lmp, const std::string &text)
{
  if (setting(lmp, "universe_rank") > 0) return;
  std::fprintf(stderr, "%s\n", text.c_str());
}

}    // namespace pair_pwmlff
