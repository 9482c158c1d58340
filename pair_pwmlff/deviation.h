// SPDX-License-Identifier: GPL-2.0-or-later

// How far the models of an ensemble are apart, and the file that says so.

#ifndef PWMLFF_DEVIATION_H
#define PWMLFF_DEVIATION_H

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// Average, minimum and maximum over all atoms of all ranks.
struct Spread {
  double average, minimum, maximum;
};

/// Standard deviation over the models (population, i.e. divided by the number of models), per atom:
///   sigma_i = sqrt( 1/M sum_m |q_im - <q_i>|^2 ),   <q_i> = 1/M sum_m q_im
/// and its spread over all atoms. Collective over comm; ranks may have no atom.
/// @param values one array per model, [natoms, width]; width 3 for forces, 1 for energies
Spread ensemble_deviation(const std::vector<std::vector<double>> &values, int natoms, int width,
                          MPI_Comm comm);

/// Keeps a file for one writer of this process as long as it lives.
class FileClaim {
 public:
  /// @param path  of a file that need not be there; what is there and no regular file serves many.
  ///              It is that of the folder where the process is now.
  /// @throws std::runtime_error where another one has it
  explicit FileClaim(const std::string &path);
  ~FileClaim();
  FileClaim(const FileClaim &) = delete;
  FileClaim &operator=(const FileClaim &) = delete;

  /// Of the file, from the root.
  const std::string &path() const { return path_; }

 private:
  std::string path_;
  std::string claimed;    // without links; empty where many may write
};

/// Writes one line per step, in the columns that MatPL writes:
///   step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e
/// Where a step is computed more than once (line searches, Monte Carlo), the last one counts.
/// One process at a time has a file (flock, where the file system has it).
class DeviationFile {
 public:
  DeviationFile() = default;
  ~DeviationFile() { close(); }
  DeviationFile(const DeviationFile &) = delete;
  DeviationFile &operator=(const DeviationFile &) = delete;

  /// Start the file anew. @throws std::runtime_error where it cannot be written, or another process
  /// has it
  void open(const std::string &path);
  /// Go on with a file that is there, or start one. Lines of step `first` and later, which are
  /// about to be computed again, and a last line that is not complete are removed.
  /// @throws std::runtime_error where it cannot be read or written, is no such file, or another
  /// process has it
  void resume(const std::string &path, std::int64_t first);
  /// Write a line; it takes the place of the last one if that is of the same step.
  /// @param begins  a run begins: the same step is then either the end of the run before, and
  ///                nothing is written, or another structure, which gets a line of its own
  /// @throws std::runtime_error where the line cannot be written
  void write(std::int64_t step, const Spread &force, const Spread &energy, bool begins);
  void close();

 private:
  [[noreturn]] void fail(const std::string &what) const;
  void take(const std::string &path);
  void start();

  struct Line {
    std::int64_t step = -1;
    Spread force{}, energy{};
    long start = 0;    // place in the file
  };

  std::string path_;
  std::FILE *file = nullptr;
  int lock = -1;    // handle of the same file
  Line last;
};

}    // namespace pair_pwmlff

#endif
