// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation_recorder.h"

#include "collective.h"
#include "supervision.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "fix.h"
#include "modify.h"
#include "pair.h"
#include "update.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

/// Average, minimum and maximum over all atoms of all ranks.
struct DeviationRecorder::Spread {
  double average, minimum, maximum;

  /// Whether it is of the same structure, up to the order of sums in single precision.
  bool is_close_to(const Spread &other) const
  {
    const double allowed = 1e-3 * std::max(maximum, other.maximum);
    return std::abs(average - other.average) <= allowed &&
           std::abs(minimum - other.minimum) <= allowed &&
           std::abs(maximum - other.maximum) <= allowed;
  }
};

// Files of all styles and all LAMMPS instances of this process, which may have a thread each.
static std::mutex claims_mutex;
static std::set<std::string> claims;

/// Writes one line per step, in the columns that MatPL writes:
///   step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e
/// Where a step is computed more than once (line searches, Monte Carlo), the last one counts. A
/// file has one writer: one object in this process, from its construction on, and one process
/// (flock, where the file system has it), once it is open. What is no regular file may have many.
class DeviationRecorder::File {
 public:
  /// @param name  relative to the folder where the process is now; the file need not exist
  /// @throws std::runtime_error where another object of this process has it
  explicit File(const std::string &name) : path(fs::absolute(name).string())
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

  ~File()
  {
    if (file) std::fclose(file);
    if (lock >= 0) close(lock);
    const std::lock_guard guard(claims_mutex);
    claims.erase(claimed);
  }

  File(const File &) = delete;
  File &operator=(const File &) = delete;

  /// Start the file anew, or go on with one that is there: lines of step `first` and later, which
  /// are about to be computed again, and a last line that is not complete are removed then.
  /// @throws std::runtime_error where it cannot be read or written, is no such file, or another
  ///         process has it
  void open(bool append, std::int64_t first)
  {
    lock_out_other_processes();
    const auto end = append ? end_of_lines_before(first) : 0;
    if (end > 0 && truncate(path.c_str(), end) != 0) fail("shorten");
    file = std::fopen(path.c_str(), end > 0 ? "a" : "w");
    if (!file) fail("write");
    if (end > 0) return;
    std::fprintf(file, "%9s %16s %16s %16s %16s %16s %16s\n", FIRST_WORD, "avg_devi_f",
                 "min_devi_f", "max_devi_f", "avg_devi_e", "min_devi_e", "max_devi_e");
    std::fflush(file);
  }

  /// Write a line; it takes the place of the last one if that is of the same step.
  /// @param begins  a run begins: the same step is then either the end of the run before, and
  ///                nothing is written, or another structure, which gets a line of its own
  /// @throws std::runtime_error where the line cannot be written
  void write(std::int64_t step, const Spread &force, const Spread &energy, bool begins)
  {
    const bool again = step == last.step;
    if (again && begins && force.is_close_to(last.force) && energy.is_close_to(last.energy)) return;
    if (again && !begins) {
      // What is no regular file cannot be shortened, and gets one line more.
      [[maybe_unused]] const int failure = ftruncate(fileno(file), last.start);
    }
    std::fseek(file, 0, SEEK_END);
    last = {step, force, energy, std::ftell(file)};
    const int written = std::fprintf(
        file, "%9" PRId64 " %16.9f %16.9f %16.9f %16.9f %16.9f %16.9f\n", step, force.average,
        force.minimum, force.maximum, energy.average, energy.minimum, energy.maximum);
    if (written < 0 || std::fflush(file) != 0) fail("write");
  }

 private:
  static constexpr const char *FIRST_WORD = "#    step";
  static constexpr int TRIES = 20;    // for a process that is about to end
  static constexpr std::chrono::milliseconds BETWEEN_TRIES{100};

  [[noreturn]] void fail(const std::string &what) const
  {
    throw std::runtime_error("cannot " + what + " the model deviation file " + path + ": " +
                             std::strerror(errno) + "; choose another one with out_file");
  }

  void lock_out_other_processes()
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

  /// Offset in the file; 0 where there is no file, or no header.
  std::streamoff end_of_lines_before(std::int64_t step) const
  {
    std::ifstream old(path);
    std::string line;
    if (!std::getline(old, line) || old.eof()) return 0;
    if (line.rfind(FIRST_WORD, 0) != 0)
      throw std::runtime_error(
          "file " + path + " starts with '" + line.substr(0, 40) +
          "', so it is no model deviation file; choose another one with out_file");
    std::streamoff end = old.tellg();
    // getline meets the end of the file before the end of an incomplete line
    while (std::getline(old, line) && !old.eof() && std::strtoll(line.c_str(), nullptr, 10) < step)
      end = old.tellg();
    return end;
  }

  struct Line {
    std::int64_t step = -1;
    Spread force{}, energy{};
    long start = 0;    // offset in the file
  };

  std::string path;       // absolute
  std::string claimed;    // the same without links; empty where many may write
  std::FILE *file = nullptr;
  int lock = -1;    // descriptor of the same file
  Line last;
};

/// Distinguishes the forces that a run goes on with from those of a structure that is only tried.
///
/// Integrators and minimizers announce to all fixes that they are about to compute forces
/// (pre_force). What probes other structures in between, like fix numdiff and compute fep, calls
/// the pair style without. Commands that announce what they probe (dynamical_matrix) do so outside
/// of a run. Monte Carlo fixes announce their trials within a run, and there the last evaluation of
/// a step is that of the structure it ends with.
class AnnouncedForces : public Fix {
 public:
  /// Add one to a LAMMPS whose box exists. It belongs to LAMMPS, and users can remove it.
  /// @param handle  points to it from now on, and is null once it is gone
  static void add(LAMMPS *lmp, AnnouncedForces *&handle)
  {
    static constexpr const char *STYLE = "PWMLFF/ANNOUNCED";    // upper case: not for inputs
    const std::string id = "pwmlff_announced_";
    (*lmp->modify->fix_map)[STYLE] = [](LAMMPS *instance, int narg, char **arg) -> Fix * {
      return new AnnouncedForces(instance, narg, arg);
    };
    int number = 1;    // hybrid styles can have several
    while (lmp->modify->get_fix_by_id(id + std::to_string(number))) ++number;
    handle = static_cast<AnnouncedForces *>(
        lmp->modify->add_fix(id + std::to_string(number) + " all " + STYLE, /*trysuffix=*/0));
    handle->handle = &handle;
  }

  ~AnnouncedForces() override
  {
    if (handle) *handle = nullptr;
  }

  /// Whether forces were announced since the last call.
  bool test_and_clear() { return std::exchange(announced, false); }

  int setmask() override
  {
    return FixConst::PRE_FORCE | FixConst::MIN_PRE_FORCE | FixConst::PRE_FORCE_RESPA;
  }
  void setup_pre_force(int) override { announce(); }
  void setup_pre_force_respa(int, int) override { announce(); }
  void pre_force(int) override { announce(); }
  void min_pre_force(int) override { announce(); }
  void pre_force_respa(int, int, int) override { announce(); }

 private:
  AnnouncedForces(LAMMPS *lmp, int narg, char **arg) : Fix(lmp, narg, arg) {}
  void announce() { announced = update->whichflag != 0; }

  bool announced = false;
  AnnouncedForces **handle = nullptr;
};

DeviationRecorder::DeviationRecorder(LAMMPS *lmp, const Settings &settings) :
    Pointers(lmp),
    every(settings.out_freq),
    out_file(settings.out_file),
    append(settings.out_append || is_continuation()),    // else earlier lines would be lost
    forces(settings.files.size()),
    energies(settings.files.size())
{
  all_or_stop(lmp, [&] {
    if (comm->me == 0) file = std::make_unique<File>(out_file);
  });
}

DeviationRecorder::~DeviationRecorder()
{
  if (announced_forces) modify->delete_fix(announced_forces->id);
}

void DeviationRecorder::init()
{
  if (!announced_forces) AnnouncedForces::add(lmp, announced_forces);
  if (opened) return;
  all_or_stop(lmp, [&] {
    if (file) file->open(append, update->ntimestep);
  });
  opened = true;
}

// The deviation is that of structures that the run goes through, not of those that a fix probes.
bool DeviationRecorder::due(bool requested)
{
  if (!announced_forces || !announced_forces->test_and_clear()) return false;
  line_is_due = update->ntimestep % every == 0;
  if (!line_is_due) warn_of_skipped_frames();
  return line_is_due || requested;
}

// rerun sets up each frame anew; those between the multiples of out_freq are missed in the file.
void DeviationRecorder::warn_of_skipped_frames()
{
  if (warned_of_skipped_frames || !update->setupflag || update->ntimestep == update->firststep)
    return;
  warned_of_skipped_frames = true;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style pwmlff: out_freq is {}: frames of other steps, like {}, get no line in "
        "'{}'; 'out_freq 1' gives one to each frame",
        every, update->ntimestep, out_file);
}

void DeviationRecorder::store(int model, const Neighbors &neighbors, const Evaluation *result,
                              double unit)
{
  forces[model].assign(3 * static_cast<std::size_t>(atom->nlocal + atom->nghost), 0.0);
  energies[model].assign(atom->nlocal, 0.0);
  if (!result) return;
  for (int row = 0; row < neighbors.nrows(); ++row)
    for (int k = 0; k < 3; ++k)
      forces[model][3 * neighbors.atom()[row] + k] = unit * result->force[3 * row + k];
  for (int row = 0; row < neighbors.ncenters(); ++row)
    energies[model][neighbors.atom()[row]] = unit * result->atom_energy[row];
}

void DeviationRecorder::compare(Pair *pair, const Neighbors &neighbors)
{
  for (auto &values : forces) {
    reverse = values.data();
    comm->reverse_comm(pair);
  }
  const Spread force = deviation(forces, 3, neighbors, force_sigma);
  const Spread energy = deviation(energies, 1, neighbors, energy_sigma);
  compared_step = update->ntimestep;
  if (!line_is_due) return;
  all_or_stop(lmp, [&] {
    if (file) file->write(update->ntimestep, force, energy, update->setupflag != 0);
  });
}

// Of each local atom, and its spread over all atoms of all ranks, which may have none. Collective.
// values: a per-atom array for each model, `width` numbers for an atom.
DeviationRecorder::Spread DeviationRecorder::deviation(const PerModel &values, int width,
                                                       const Neighbors &neighbors,
                                                       std::vector<double> &sigma) const
{
  const auto nmodels = static_cast<double>(values.size());
  double sum[2] = {0.0, static_cast<double>(neighbors.ncenters())};
  double extreme[2] = {-std::numeric_limits<double>::infinity(), 0.0};    // of -sigma and sigma
  sigma.assign(atom->nlocal, 0.0);
  for (int row = 0; row < neighbors.ncenters(); ++row) {
    const int i = neighbors.atom()[row];
    double variance = 0.0;
    for (int k = 0; k < width; ++k) {
      const std::size_t index = static_cast<std::size_t>(i) * width + k;
      double mean = 0.0;
      for (const auto &model : values) mean += model[index];
      mean /= nmodels;
      for (const auto &model : values) variance += (model[index] - mean) * (model[index] - mean);
    }
    sigma[i] = std::sqrt(variance / nmodels);
    sum[0] += sigma[i];
    extreme[0] = std::max(extreme[0], -sigma[i]);
    extreme[1] = std::max(extreme[1], sigma[i]);
  }
  MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, extreme, 2, MPI_DOUBLE, MPI_MAX, world);
  if (sum[1] == 0.0) return {0.0, 0.0, 0.0};
  return {sum[0] / sum[1], -extreme[0], extreme[1]};
}

double *DeviationRecorder::of_this_step(std::vector<double> &sigma) const
{
  if (compared_step != update->ntimestep || static_cast<int>(sigma.size()) != atom->nlocal)
    return nullptr;
  sigma.reserve(1);    // a rank without atoms has an array too
  return sigma.data();
}

int DeviationRecorder::pack(int n, int first, double *buf) const
{
  std::copy_n(&reverse[3 * first], 3 * n, buf);
  return 3 * n;
}

void DeviationRecorder::unpack(int n, const int *list, const double *buf)
{
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < 3; ++k) reverse[3 * list[i] + k] += *buf++;
}

double DeviationRecorder::memory_usage() const
{
  std::size_t numbers = force_sigma.capacity() + energy_sigma.capacity();
  for (const auto *const arrays : {&forces, &energies})
    for (const auto &values : *arrays) numbers += values.capacity();
  return static_cast<double>(numbers * sizeof(double));
}

}    // namespace pair_pwmlff
