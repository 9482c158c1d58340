// SPDX-License-Identifier: GPL-2.0-or-later

// The models that a pair style evaluates: reading their files, checking them against each other and
// against the atoms, and what the log says of them.

#pragma once

#include "models/model.h"
#include "pair_settings.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// The first one drives the simulation.
using Ensemble = std::vector<std::unique_ptr<pwmlff::models::Model>>;

/// Load the models, each file read once, by rank 0, or stop LAMMPS on all ranks. The models can
/// stand in for each other: they have the same elements, in any order, cutoff and units.
/// Collective.
/// @param read        called with the contents of each file
/// @param options     of which open_torch() is called before a file that needs torch
/// @param files as the user names them; LAMMPS looks for potentials in folders of its own too
Ensemble load_ensemble(LAMMPS_NS::LAMMPS *lmp, const std::vector<std::string> &files,
                       const pwmlff::models::EngineOptions &options,
                       const std::function<void(const std::string &)> &read);

/// How many edges away from a center the edges start that any of the models depends on; -1 where
/// none takes edges.
int hops(const Ensemble &models);

/// How many numbers of a row the models exchange with other rows at a time, at most; 0: none do.
int exchange_width(const Ensemble &models);

/// Stop where ranks run engines that cannot exchange features: what one rank waits for, all others
/// have to send. Collective.
void require_one_exchange(LAMMPS_NS::LAMMPS *lmp, const Ensemble &models);

/// A line for each model: file, SHA-256, kind, engine.
/// @param hashes [nmodels] SHA-256 of the files
std::vector<std::string> identities(const Ensemble &models, const std::vector<std::string> &hashes);

/// For the log: files, kinds, engines, elements, and what becomes of the deviation of several
/// models.
/// @param style  its name in the input
/// @param species_of_type [ntypes+1] -1 for NULL
std::string summary(const Ensemble &models, const std::string &style,
                    const std::vector<int> &species_of_type, const Settings &settings);

/// Warn of types that take an element which the training of a model had no atom of.
void warn_of_elements(LAMMPS_NS::LAMMPS *lmp, const Ensemble &models,
                      const std::vector<int> &species_of_type);

/// Warn of types with the mass of another element: elements in the wrong order run like any others,
/// and give wrong numbers.
void check_masses(LAMMPS_NS::LAMMPS *lmp, const pwmlff::models::ModelInfo &info,
                  const std::vector<int> &species_of_type);

/// Warn of a compute heat/flux that is wrong for these models. With U_i the energy of atom i, what
/// its virial part needs is sum_ij (r_j - r_i) (dU_j/dr_i . v_i) (Fan et al. 2015,
/// doi:10.1103/PhysRevB.92.094301). The virials of compute centroid/stress/atom have that, where
/// U_j depends on what is within the cutoff of j; those of compute stress/atom do not.
void check_heat_flux(LAMMPS_NS::LAMMPS *lmp, const Ensemble &models);

}    // namespace pair_pwmlff
