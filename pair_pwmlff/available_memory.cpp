// SPDX-License-Identifier: GPL-2.0-or-later

#include "available_memory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace pair_pwmlff {
namespace {

constexpr double UNLIMITED = std::numeric_limits<double>::infinity();

// The names of a limit, of what is used of it, and of the part of that which the kernel gives up
// first: pages of files that were not read lately.
struct Names {
  const char *folder, *limit, *used, *reclaimable;
};
constexpr Names VERSION_1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                             "memory.usage_in_bytes", "total_inactive_file"};
constexpr std::array FOLDERS_2 = {"sys/fs/cgroup", "sys/fs/cgroup/unified"};

// The number after a word that a line starts with; the first number of the file where that is
// empty. "max" and what is not there are no limit.
double number(const std::filesystem::path &file, const std::string &word, double otherwise)
{
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string first;
    double value = 0.0;
    if (!word.empty() && !(words >> first && first == word)) continue;
    return words >> value ? value : otherwise;
  }
  return otherwise;
}

double left_in(const std::filesystem::path &folder, const Names &names)
{
  const double limit = number(folder / names.limit, "", UNLIMITED);
  const double used = number(folder / names.used, "", 0.0);
  return limit - used + number(folder / "memory.stat", names.reclaimable, 0.0);
}

// The least that is left in a group and in all those that it is part of.
double left_up_to(const std::filesystem::path &top, std::filesystem::path group, const Names &names)
{
  double left = UNLIMITED;
  for (group = group.relative_path(); !group.empty(); group = group.parent_path())
    left = std::min(left, left_in(top / group, names));
  return std::min(left, left_in(top, names));
}

}    // namespace

double available_memory(const std::string &root)
{
  const std::filesystem::path top = root;
  constexpr double KIB = 1024.0;
  double left = KIB * number(top / "proc/meminfo", "MemAvailable:", UNLIMITED);
  std::ifstream groups(top / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {    // number:controllers:/path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers == "memory")
      left = std::min(left, left_up_to(top / VERSION_1.folder, group, VERSION_1));
    for (const char *const folder : FOLDERS_2)
      if (controllers.empty())
        left =
            std::min(left, left_up_to(top / folder, group,
                                      {folder, "memory.max", "memory.current", "inactive_file"}));
  }
  return left;
}

}    // namespace pair_pwmlff
