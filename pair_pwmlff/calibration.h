// SPDX-License-Identifier: GPL-2.0-or-later

// What a training has found of how large the errors of an ensemble, or of one model, are.

#pragma once

#include "pointers.h"

#include <string>
#include <vector>

namespace pair_pwmlff {

/// A file of `pwmlff train` (python/pwmlff/train/uncertainty.py): comments with the SHA-256 of the
/// models, then lines of a deviation, or of gamma where there is one model, and of the bound that
/// 90 % of the errors are below from there on, in the model's units. Rank 0 has it.
class Calibration : private LAMMPS_NS::Pointers {
 public:
  /// Read it, or stop LAMMPS on all ranks. Collective.
  Calibration(LAMMPS_NS::LAMMPS *lmp, const std::string &file);

  /// Stop LAMMPS on all ranks where the file is of other models. Collective.
  /// @param hashes [nmodels] SHA-256 of the files that are loaded
  void require(const std::vector<std::string> &hashes) const;

  /// The bound for a deviation, on rank 0; beyond the last one it grows in proportion.
  double bound(double deviation) const;

 private:
  const std::string file;
  std::vector<std::string> models;           // SHA-256
  std::vector<double> deviations, bounds;    // ascending
};

}    // namespace pair_pwmlff
