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

/// The extrapolation grade gamma of the atoms of this rank (DPGrade in kernels/dp/network.h), and
/// what becomes of those beyond a limit.
class Extrapolation : private LAMMPS_NS::Pointers {
 public:
  /// @param limit  to look for at each step, if any
  Extrapolation(LAMMPS_NS::LAMMPS *lmp, const std::optional<GradeLimit> &limit);

  /// Keep gamma of this step, and look for atoms beyond the limit.
  /// @param result  of a model with a grade, or null on a rank without centers
  /// @throws std::runtime_error for an atom beyond the limit, where a run is to end by it; else a
  ///         warning, one for each element
  void take(const pwmlff::models::Model &model, const pwmlff::models::Neighbors &neighbors,
            const pwmlff::Evaluation *result);

  /// The largest of this step, of atoms of all ranks on rank 0, 0 on others. Collective.
  double largest() const;

  /// [nlocal], zero for atoms that are NULL; null where it was not taken on this step.
  double *of_this_step();

  double memory_usage() const { return gamma.capacity() * sizeof(double); }

 private:
  const std::optional<GradeLimit> limit;
  std::vector<double> gamma;    // [nlocal]
  LAMMPS_NS::bigint step = -1;
  std::vector<bool> warned;    // [nspecies]
};

}    // namespace pair_pwmlff
