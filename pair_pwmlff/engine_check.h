// SPDX-License-Identifier: GPL-2.0-or-later

// The engines of a run against what they were verified against, on structures of the run.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"
#include "models/verification.h"

#include "pointers.h"

#include <cstdint>
#include <vector>

namespace pair_pwmlff {

/// Every so many steps, a random tenth of the centers of each rank (at most 1000) is evaluated by
/// the engine of each model and by what that was verified against: energies of these atoms, and the
/// forces that come from them. The log has what differs more than all before it, and a warning
/// where that is beyond the gate of the precision.
class EngineCheck : private LAMMPS_NS::Pointers {
 public:
  /// @param every  steps
  /// @param gate   relative to the largest energy or force there, or to 1 eV or 1 eV/angstrom
  EngineCheck(LAMMPS_NS::LAMMPS *lmp, int every, pwmlff::models::Gate gate);

  /// Whether this step is to be checked, and has not been.
  bool due() const;

  /// Collective. @param temperature Input::temperature
  /// @throws pwmlff::TooManyNeighbors, std::runtime_error as Model::evaluate(), on this rank alone
  void compare(const Ensemble &models, const pwmlff::models::Neighbors &neighbors,
               double temperature);

 private:
  struct Difference {
    double energy, force;                    // largest differences, eV and eV/angstrom
    double largest_energy, largest_force;    // of what is compared with
  };

  void draw(const pwmlff::models::Neighbors &neighbors, int nspecies);
  Difference difference(pwmlff::models::Model &model, pwmlff::models::Model &partner,
                        double temperature);

  const int every;
  const pwmlff::models::Gate gate;
  std::int64_t checked_step = -1;
  pwmlff::models::Neighbors sample;
  std::vector<double> x;            // [nrows of sample, 3]
  std::vector<Difference> worst;    // of each model, so far
};

}    // namespace pair_pwmlff
