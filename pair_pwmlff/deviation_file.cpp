// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace pair_pwmlff {

static constexpr const char *FIRST_WORD = "#    step";
static constexpr int TRIES = 20;    // for a process that is about to end
static constexpr std::chrono::milliseconds BETWEEN_TRIES(100);

// Files of all styles and all LAMMPS instances of this process, which may have a thread each.
static std::mutex claims_mutex;
static std::set<std::string> claims;

DeviationFile::DeviationFile(const std::string &name) : path(fs::absolute(name).string())
{
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  std::string real = fs::weakly_canonical(path, failure).string();
  if (failure) real = path;
  const std::lock_guard guard(claims_mutex);
  if (!claims.insert(real).second)
    throw std::runtime_error("two ensembles write to '" + name + "'; give each its own out_file");
  claimed = real;
}

DeviationFile::~DeviationFile()
{
  if (file) std::fclose(file);
  if (lock >= 0) close(lock);
  const std::lock_guard guard(claims_mutex);
  claims.erase(claimed);
}

void DeviationFile::fail(const std::string &what) const
{
  throw std::runtime_error("cannot " + what + " the model deviation file " + path + ": " +
                           std::strerror(errno) + "; choose another one with out_file");
}

void DeviationFile::lock_out_other_processes()
{
  if (claimed.empty()) return;
  if (lock < 0) lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0) fail("write");
  for (int k = 0; flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++k) {
    if (k == TRIES)
      throw std::runtime_error("another process writes to the model deviation file " + path +
                               "; let it end, or choose another file with out_file");
    std::this_thread::sleep_for(BETWEEN_TRIES);
  }
}

void DeviationFile::open()
{
  lock_out_other_processes();
  start();
}

void DeviationFile::start()
{
  file = std::fopen(path.c_str(), "w");
  if (!file) fail("write");
  std::fprintf(file, "%9s %16s %16s %16s %16s %16s %16s\n", FIRST_WORD, "avg_devi_f", "min_devi_f",
               "max_devi_f", "avg_devi_e", "min_devi_e", "max_devi_e");
  std::fflush(file);
}

void DeviationFile::resume(std::int64_t first)
{
  lock_out_other_processes();
  std::ifstream old(path);
  std::string line;
  if (!std::getline(old, line) || old.eof()) return start();    // no file, or no header
  if (line.rfind(FIRST_WORD, 0) != 0)
    throw std::runtime_error(
        "file " + path + " starts with '" + line.substr(0, 40) +
        "', so it is no model deviation file; choose another one with out_file");
  auto end = old.tellg();
  // getline meets the end of the file before the end of an incomplete line
  while (std::getline(old, line) && !old.eof() && std::strtoll(line.c_str(), nullptr, 10) < first)
    end = old.tellg();
  old.close();
  if (truncate(path.c_str(), end) != 0) fail("shorten");
  file = std::fopen(path.c_str(), "a");
  if (!file) fail("write");
}

// Whether two spreads are of the same structure, up to the order of sums in single precision.
static bool same(const Spread &a, const Spread &b)
{
  const double allowed = 1e-3 * std::max(a.maximum, b.maximum);
  return std::abs(a.average - b.average) <= allowed && std::abs(a.minimum - b.minimum) <= allowed &&
         std::abs(a.maximum - b.maximum) <= allowed;
}

void DeviationFile::write(std::int64_t step, const Spread &force, const Spread &energy, bool begins)
{
  const bool again = step == last.step;
  if (again && begins && same(force, last.force) && same(energy, last.energy)) return;
  if (again && !begins) {
    // What is no regular file cannot be shortened, and gets one line more.
    [[maybe_unused]] const int failure = ftruncate(fileno(file), last.start);
  }
  std::fseek(file, 0, SEEK_END);
  last = {step, force, energy, std::ftell(file)};
  const int written = std::fprintf(file, "%9" PRId64 " %16.9f %16.9f %16.9f %16.9f %16.9f %16.9f\n",
                                   step, force.average, force.minimum, force.maximum,
                                   energy.average, energy.minimum, energy.maximum);
  if (written < 0 || std::fflush(file) != 0) fail("write");
}

}    // namespace pair_pwmlff
