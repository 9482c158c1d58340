// SPDX-License-Identifier: GPL-2.0-or-later

// The file with a line for each comparison of the models of an ensemble.

#pragma once

#include "owned_file.h"
#include "pair_settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// Average, minimum and maximum.
struct Spread {
  double average = 0.0, minimum = 0.0, maximum = 0.0;

  /// Whether it is of the same structure, up to the order of sums in single precision.
  bool is_close_to(const Spread &other) const;
};

/// By how much models differ on a structure, in LAMMPS's units (DeviationRecorder).
struct Deviation {
  Spread force, energy;    // over atoms
  Spread virial;           // over the nine components; its average is the root mean square
  double total_energy = 0.0;

  bool is_close_to(const Deviation &other) const;
};

/// Columns of the format matpl, as MatPL writes them:
///   step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e
/// and of the format dpgen, as DeePMD-kit writes them and DP-GEN reads them:
///   step max_devi_v min_devi_v avg_devi_v max_devi_f min_devi_f avg_devi_f
/// The first line has these names. Where a step is computed more than once (line searches, Monte
/// Carlo), the last one counts.
class DeviationFile {
 public:
  /// @throws std::runtime_error where another object of this process has the file
  explicit DeviationFile(const Settings &settings);

  /// Start the file anew, or go on with one that is there: lines of step `first` and later, which
  /// are about to be computed again, and a last line that is not complete are removed then.
  /// @param header  lines without '#' that follow the names in a file that is begun
  /// @throws std::runtime_error where it cannot be read or written, is no such file or of the other
  ///         format, or another process has it
  void open(bool append, std::int64_t first, const std::vector<std::string> &header);

  /// Write a line; it takes the place of the last one if that is of the same step.
  /// @param of_atoms  what follows in the line; empty without
  /// @param begins    a run begins: the same step is then either the end of the run before, and
  ///                  nothing is written, or another structure, which gets a line of its own
  /// @throws std::runtime_error where the line cannot be written
  void write(std::int64_t step, const Deviation &deviation, const std::vector<double> &of_atoms,
             bool begins);

 private:
  std::int64_t end_of_lines_before(const std::string &path, std::int64_t step) const;
  std::string names() const;

  const std::string name;
  const DeviationFormat format;
  OwnedFile file;
  std::int64_t last_step = -1, last_start = 0;    // of the last line; its offset
  Deviation last;
};

}    // namespace pair_pwmlff
