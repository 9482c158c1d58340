// SPDX-License-Identifier: GPL-2.0-or-later

// The engines of a run against what they were verified against, on structures of the run, and the
// lists of neighbors that all of them rely on.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"
#include "models/verification.h"

#include "pointers.h"

#include <cstdint>
#include <random>
#include <vector>

namespace pair_pwmlff {

/// Every so many steps, a part of the atoms of each rank is evaluated by the engine of each model
/// and by what that was verified against, and energies of atoms and forces are compared: a random
/// tenth of the centers (at most 1000) with what surrounds them; for models that take edges, whose
/// energies depend on more than a rank has, a piece of as many atoms (24 to 100) around a random
/// center, as if there were nothing beside it. The log has what differs more than all before it,
/// and a warning where that is beyond the gate of the precision, or of what is compared with if
/// that is wider. Both use one list of neighbors; so it looks at each step whether atoms have moved
/// farther since that was made than LAMMPS allows where it checks that itself (neigh_modify).
class EngineCheck : private LAMMPS_NS::Pointers {
 public:
  /// @param every  steps
  /// @param gate   relative to the largest energy or force there, or to 1 eV or 1 eV/angstrom
  EngineCheck(LAMMPS_NS::LAMMPS *lmp, int every, pwmlff::models::Gate gate);

  /// Whether this step is to be checked, and has not been.
  bool due() const;

  /// On each step. @param list  the number of the list that the neighbors are of
  void watch(const pwmlff::models::Neighbors &neighbors, int list);

  /// Collective. @param temperature Input::temperature
  /// @throws pwmlff::TooManyNeighbors, std::runtime_error as Model::evaluate(), on this rank alone
  void compare(const Ensemble &models, const pwmlff::models::Neighbors &neighbors,
               double temperature);

 private:
  struct Difference {
    double energy, force;                    // largest differences, eV and eV/angstrom
    double largest_energy, largest_force;    // of what is compared with
  };

  /// Centers to evaluate, and their surroundings.
  struct Sample {
    pwmlff::models::Neighbors neighbors;
    std::vector<double> x;    // [nrows, 3]

    /// @param rows  of all neighbors, the centers first
    /// @param first, candidate, hops  as Neighbors::assign() takes them
    void assign(const pwmlff::models::Neighbors &all, const std::vector<int> &rows, int ncenters,
                int nspecies, std::vector<int> first, std::vector<int> candidate, int hops);
  };

  std::mt19937_64 random() const;    // of this step and rank
  std::vector<double> corners() const;
  void report_movement();
  void draw(const pwmlff::models::Neighbors &neighbors, int nspecies);
  void cut(const pwmlff::models::Neighbors &neighbors, const pwmlff::models::ModelInfo &info);
  Difference difference(Sample &sample, pwmlff::models::Model &model,
                        pwmlff::models::Model &partner, double temperature);

  const int every;
  const pwmlff::models::Gate gate;
  std::int64_t checked_step = -1;
  Sample drawn, piece;
  std::vector<Difference> worst;    // of each model, so far

  int list_of_hold = 0;                              // the list that these were at; none yet
  std::vector<double> x_hold, corners_hold;          // [ncenters, 3], [., 3] of the box
  double movement = 0.0, reported_movement = 0.0;    // largest so far: here, of all in the log
};

}    // namespace pair_pwmlff
