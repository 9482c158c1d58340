// SPDX-License-Identifier: GPL-2.0-or-later

// Atoms that are closer than a model knows.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"
#include "pair_settings.h"

#include "pointers.h"

#include <string>
#include <utility>
#include <vector>

namespace pair_pwmlff {

/// Looks at each step whether two atoms are closer than a limit for their elements: one distance,
/// or the closest ones of the data that the model was trained on. It keeps the pairs that can come
/// so close before the next list of neighbors.
class DistanceGuard : private LAMMPS_NS::Pointers {
 public:
  DistanceGuard(LAMMPS_NS::LAMMPS *lmp, const MinDistance &wanted);

  /// Take the limits, for models that are loaded; stops LAMMPS on all ranks where the first one
  /// does not say how close atoms of its data were.
  void init(const Ensemble &models);

  /// Look at the pairs of this rank.
  /// @param list  the number of the list that the neighbors are of (NeighborSource::lists())
  /// @throws std::runtime_error for atoms that are too close, where a run is to end by it; else a
  ///         warning, one for each pair of elements
  void look(const pwmlff::models::Neighbors &neighbors, int list);

 private:
  void collect(const pwmlff::models::Neighbors &neighbors);

  const MinDistance wanted;
  std::vector<int> elements;                // [nspecies] atomic numbers
  std::vector<double> limit;                // [nspecies, nspecies] angstrom
  std::vector<std::pair<int, int>> near;    // rows, the first of which is a center
  int list_of_near = 0;                     // the list that they are of; none yet
  std::vector<bool> warned;                 // [nspecies, nspecies]
};

}    // namespace pair_pwmlff
