// SPDX-License-Identifier: GPL-2.0-or-later

// The file of the model deviation: a line for each step at which an ensemble was compared.

#ifndef PWMLFF_DEVIATION_FILE_H
#define PWMLFF_DEVIATION_FILE_H

#include <cstdint>
#include <cstdio>
#include <string>

namespace pair_pwmlff {

/// Average, minimum and maximum over all atoms of all ranks.
struct Spread {
  double average, minimum, maximum;
};

/// Writes one line per step, in the columns that MatPL writes:
///   step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e
/// Where a step is computed more than once (line searches, Monte Carlo), the last one counts. A
/// file has one writer: one object in this process, from its construction on, and one process
/// (flock, where the file system has it), once it is open. What is no regular file may have many.
class DeviationFile {
 public:
  /// @param path  relative to the folder where the process is now; the file need not exist
  /// @throws std::runtime_error where another object of this process has it
  explicit DeviationFile(const std::string &path);
  ~DeviationFile();
  DeviationFile(const DeviationFile &) = delete;
  DeviationFile &operator=(const DeviationFile &) = delete;

  /// Start the file anew.
  /// @throws std::runtime_error where it cannot be written, or another process has it
  void open();
  /// Go on with a file that is there, or start one. Lines of step `first` and later, which are
  /// about to be computed again, and a last line that is not complete are removed.
  /// @throws std::runtime_error also where it cannot be read, or is no such file
  void resume(std::int64_t first);
  /// Write a line; it takes the place of the last one if that is of the same step.
  /// @param begins  a run begins: the same step is then either the end of the run before, and
  ///                nothing is written, or another structure, which gets a line of its own
  /// @throws std::runtime_error where the line cannot be written
  void write(std::int64_t step, const Spread &force, const Spread &energy, bool begins);

 private:
  [[noreturn]] void fail(const std::string &what) const;
  void lock_out_other_processes();
  void start();

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

}    // namespace pair_pwmlff

#endif
