// SPDX-License-Identifier: GPL-2.0-or-later

// Atoms that are far from what a model was trained on.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"
#include "pair_settings.h"

#include "pointers.h"

#include <optional>
#include <vector>

namespace pair_pwmlff {

/// The extrapolation grade gamma of the atoms of this rank, and what becomes of those beyond a
/// limit (Neighbors::gamma(), DPGrade in kernels/families/dp/network.h).
class Extrapolation : private LAMMPS_NS::Pointers {
 public:
  /// @param limit  to look for at each step, if any
  Extrapolation(LAMMPS_NS::LAMMPS *lmp, const std::optional<GradeLimit> &limit);

  /// Keep gamma of this step, and look for atoms beyond the limit. Where it is not wanted otherwise
  /// ranks exchange nothing as long as no atom alone is beyond the limit. Collective.
  /// @param result  of a model with a grade, or null on a rank without centers
  /// @param wanted  whether gamma is read
  /// @throws std::runtime_error for an atom beyond the limit, where a run is to end by it; else a
  ///         warning, one for each element
  void take(const pwmlff::models::ModelInfo &info, pwmlff::models::Neighbors &neighbors,
            const pwmlff::Evaluation *result, bool wanted);

  /// The largest of each species of the model on this step, where it was wanted, of atoms of all
  /// ranks on rank 0. Collective.
  std::vector<double> largest() const;

  /// [nlocal], zero for atoms that are NULL; null where it was not taken on this step.
  double *of_this_step();

  double memory_usage() const { return gamma.capacity() * sizeof(double); }

 private:
  const std::optional<GradeLimit> limit;
  std::vector<double> gamma;    // [nlocal]
  std::vector<double> most;     // [nspecies] of this rank
  LAMMPS_NS::bigint step = -1;
  std::vector<bool> warned;    // [nspecies]
};

}    // namespace pair_pwmlff
