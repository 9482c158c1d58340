// SPDX-License-Identifier: GPL-2.0-or-later

// What a training has found of how large the errors of an ensemble, or of one model, are.

#pragma once

#include "pointers.h"

#include <map>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// A file of `pwmlff train` (python/pwmlff/train/uncertainty.py): comments with the SHA-256 of the
/// models and, where there is one, the errors of elements; then lines of a deviation, or of gamma
/// times the error of an element, and of the bound that 90 % of the errors are below from there on,
/// in the model's units. Rank 0 has it.
class Calibration : private LAMMPS_NS::Pointers {
 public:
  /// Read it, or stop LAMMPS on all ranks. Collective.
  Calibration(LAMMPS_NS::LAMMPS *lmp, const std::string &file);

  /// Stop LAMMPS on all ranks where the file is of other models. Collective.
  /// @param hashes [nmodels] SHA-256 of the files that are loaded
  void require(const std::vector<std::string> &hashes) const;

  /// The bound for a deviation, on rank 0; beyond the last one it grows in proportion.
  double bound(double deviation) const;

  /// The largest bound for the gamma of one model, on rank 0.
  /// @param gamma    [nspecies] the largest of the atoms of an element
  /// @param elements [nspecies] atomic numbers
  double bound(const std::vector<double> &gamma, const std::vector<int> &elements) const;

 private:
  const std::string file;
  std::vector<std::string> models;           // SHA-256
  std::map<std::string, double> errors;      // by element
  std::vector<double> deviations, bounds;    // ascending
};

}    // namespace pair_pwmlff
