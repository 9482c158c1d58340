// SPDX-License-Identifier: GPL-2.0-or-later

// Verification: the comparison of two evaluations of a model on structures made for it.

#pragma once

#include "messages.h"
#include "model.h"

#include <array>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

/// How far results may be apart, relative to the largest energy of an atom or force component in
/// the structure, or to 1 eV and 1 eV/angstrom where these are smaller.
struct Gate {
  double energy;         // of the whole, per atom
  double atom_energy;    // of one atom
  double force;          // and of virials
};

/// The gate of a precision of the fused engine: exact, double or mixed.
/// @throws std::invalid_argument for another name
Gate gate_of(const std::string &precision);

/// What others are compared with, in words: the file's own code, or the plain evaluation.
std::string original_of(const Model &model);

/// What a model gives on one test cluster. Atoms are centers and rows alike.
struct ClusterValues {
  double energy;
  std::vector<double> atom_energy;    // [atoms]
  std::vector<double> force;          // [atoms, 3]
  std::array<double, 9> virial;       // in the order of Evaluation

  bool finite() const;
};

/// What others are to give on the test clusters.
struct Expected {
  std::string original;    // what gave it, in words
  std::vector<ClusterValues> clusters;
};

/// A digest of the test clusters, which another release may choose in another way.
std::string identity_of_clusters(const ModelInfo &info, const std::vector<bool> &present);

/// Evaluate a model on random clusters of the species that take part, each with an isolated atom:
/// of distances as in condensed matter, of shorter ones up to the cutoff, and a small one of atoms
/// that nearly overlap. They are the same for the same species, cutoff and numbers of neighbors.
Expected expected_of(Model &original, const std::vector<bool> &present);

/// Compare a model with these. One that finds neighbors by itself has to do so, too.
/// @return empty where energies, atomic energies, forces and virials agree within the gate, else
///        what differs
std::string difference(const Expected &expected, Model &found, const std::vector<bool> &present,
                       const Gate &gate);

/// Evaluate a model that takes edges on a random cluster: with all edges, with those alone that the
/// energies of half of the atoms may depend on, and both again with atoms, and the edges of each,
/// numbered at random. Edges are in ascending order of their centers in all of them.
/// @param gate  by how much energies of atoms may differ, as in Gate
/// @return empty where they agree and are finite, else what is wrong
std::string out_of_contract(Model &model, const std::vector<bool> &present, double gate);

/// A model that was verified against what another one gives, within a gate.
/// @param expect   gives that, or throws
/// @param make     makes the model, or throws
/// @param why_not  set where there is none
template <class Expect, class Make>
std::unique_ptr<Model> verified(const Expect &expect, const std::vector<bool> &present,
                                const Gate &gate, const Make &make, std::string &why_not)
{
  try {
    std::unique_ptr<Model> found = make();
    why_not = difference(expect(), *found, present, gate);
    if (why_not.empty()) return found;
  } catch (const std::exception &error) {
    why_not = first_line(error);
  }
  return nullptr;
}

}    // namespace pwmlff::models
