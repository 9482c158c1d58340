// SPDX-License-Identifier: GPL-2.0-or-later

// The models that a pair style evaluates: read from their files, checked against each other.

#ifndef PWMLFF_ENSEMBLE_H
#define PWMLFF_ENSEMBLE_H

#include "models/model.h"

#include <memory>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class LAMMPS;
}

namespace pair_pwmlff {

/// The first one drives the simulation.
using Ensemble = std::vector<std::unique_ptr<pwmlff::models::Model>>;

/// Load the models, each file read once, by rank 0, or stop LAMMPS on all ranks. The models can
/// stand in for each other: they have the same elements, cutoff and units. Collective.
/// @param files as the user names them; LAMMPS looks for potentials in folders of its own too
Ensemble load_ensemble(LAMMPS_NS::LAMMPS *lmp, const std::vector<std::string> &files,
                       const pwmlff::models::EngineOptions &options);

/// How many edges away from a center the edges start that any of the models depends on; -1 where
/// none takes edges.
int hops(const Ensemble &models);

/// The longest of the models.
double interaction_range(const Ensemble &models);

}    // namespace pair_pwmlff

#endif
