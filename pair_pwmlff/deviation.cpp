// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace pair_pwmlff {

static constexpr const char *FIRST_WORD = "#    step";
static constexpr int TRIES = 20;    // for a process that is about to end
static constexpr std::chrono::milliseconds BETWEEN_TRIES(100);

Spread ensemble_deviation(const std::vector<std::vector<double>> &values, int natoms, int width,
                          MPI_Comm comm)
{
  const auto nmodels = static_cast<double>(values.size());
  double sum[2] = {0.0, static_cast<double>(natoms)};
  double extreme[2] = {-std::numeric_limits<double>::infinity(), 0.0};    // of -sigma and sigma
  for (int i = 0; i < natoms; ++i) {
    double variance = 0.0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(width); ++k) {
      const std::size_t index = static_cast<std::size_t>(i) * width + k;
      double mean = 0.0;
      for (const auto &model : values) mean += model[index];
      mean /= nmodels;
      for (const auto &model : values) variance += (model[index] - mean) * (model[index] - mean);
    }
    const double sigma = std::sqrt(variance / nmodels);
    sum[0] += sigma;
    extreme[0] = std::max(extreme[0], -sigma);
    extreme[1] = std::max(extreme[1], sigma);
  }
  MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Allreduce(MPI_IN_PLACE, extreme, 2, MPI_DOUBLE, MPI_MAX, comm);
  if (sum[1] == 0.0) return {0.0, 0.0, 0.0};
  return {sum[0] / sum[1], -extreme[0], extreme[1]};
}

// Of all styles and all LAMMPS instances of this process, which may have a thread each.
static std::mutex claims_mutex;
static std::set<std::string> claims;

FileClaim::FileClaim(const std::string &path)
{
  std::error_code failure;
  path_ = std::filesystem::absolute(path).string();
  const auto status = std::filesystem::status(path_, failure);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return;
  std::string real = std::filesystem::weakly_canonical(path_, failure).string();
  if (failure) real = path_;
  const std::lock_guard lock(claims_mutex);
  if (!claims.insert(real).second)
    throw std::runtime_error("two ensembles write to '" + path + "'; give each its own out_file");
  claimed = real;
}

FileClaim::~FileClaim()
{
  const std::lock_guard lock(claims_mutex);
  claims.erase(claimed);
}

void DeviationFile::fail(const std::string &what) const
{
  throw std::runtime_error("cannot " + what + " the model deviation file " + path_ + ": " +
                           std::strerror(errno) + "; choose another one with out_file");
}

// Let no other process write to a regular file.
void DeviationFile::take(const std::string &path)
{
  close();
  path_ = path;
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return;
  lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0) fail("write");
  for (int k = 0; flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++k) {
    if (k == TRIES)
      throw std::runtime_error("another process writes to the model deviation file " + path_ +
                               "; let it end, or choose another file with out_file");
    std::this_thread::sleep_for(BETWEEN_TRIES);
  }
}

void DeviationFile::open(const std::string &path)
{
  take(path);
  start();
}

void DeviationFile::start()
{
  file = std::fopen(path_.c_str(), "w");
  if (!file) fail("write");
  std::fprintf(file, "%9s %16s %16s %16s %16s %16s %16s\n", FIRST_WORD, "avg_devi_f", "min_devi_f",
               "max_devi_f", "avg_devi_e", "min_devi_e", "max_devi_e");
  std::fflush(file);
}

void DeviationFile::resume(const std::string &path, std::int64_t first)
{
  take(path);
  std::ifstream old(path);
  std::string line;
  if (!std::getline(old, line) || old.eof()) return start();    // no file, or no header
  if (line.rfind(FIRST_WORD, 0) != 0)
    throw std::runtime_error(
        "file " + path + " starts with '" + line.substr(0, 40) +
        "', so it is no model deviation file; choose another one with out_file");
  auto keep = old.tellg();
  // getline meets the end of the file before the end of an incomplete line
  while (std::getline(old, line) && !old.eof() && std::strtoll(line.c_str(), nullptr, 10) < first)
    keep = old.tellg();
  old.close();
  if (truncate(path.c_str(), keep) != 0) fail("shorten");
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

void DeviationFile::close()
{
  if (file) std::fclose(file);
  if (lock >= 0) ::close(lock);
  file = nullptr;
  lock = -1;
  last = {};
}

}    // namespace pair_pwmlff
