/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// A model file: load it, check it against its contract, evaluate it.
//
// Energies are in eV and lengths in angstrom, or both in reduced units for a model that says
// units = "lj". Loading a TorchScript file runs code that the file brings along.

#ifndef PWMLFF_MODEL_H
#define PWMLFF_MODEL_H

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace PWMLFF {

class Neighbors;

/// What a model file says of itself.
struct ModelInfo {
  std::string file;     // as the user named it
  std::string kind;     // "DP"
  std::string units;    // "metal" or "lj"
  double cutoff;
  std::vector<int> atom_type;    // atomic numbers; the index is the species
  int max_neighbor;              // of one species; 0 where the kind has no such limit
  std::int64_t nparameters;
  std::string dtype;    // of the parameters as stored in the file
};

/// The result of an evaluation; the arrays stay valid until the model is evaluated again.
struct Evaluation {
  double energy;                      // of all centres
  std::vector<double> atom_energy;    // [ncentres] in the order of the rows
  const double *force;             // [nrows, 3] minus the gradient of energy, on centres and others
  std::array<double, 6> virial;    // xx yy zz xy xz yz of sum r_ij (x) f_ij, LAMMPS's sign
};

class Model {
 public:
  virtual ~Model() = default;
  const ModelInfo &info() const { return info_; }

  /// Choose the species that take part in the simulation (some models depend on it).
  /// @param present [number of species]
  virtual void select_species(const std::vector<bool> &present) = 0;

  /// Energy, forces and virial. There must be at least one centre.
  /// @throws TooManyNeighbors, std::runtime_error
  virtual const Evaluation &evaluate(Neighbors &neighbors) = 0;

 protected:
  explicit Model(ModelInfo info) : info_(std::move(info)) {}
  ModelInfo info_;
};

/// Make a model from the contents of a file.
/// @throws std::runtime_error that says what is wrong with the file
std::unique_ptr<Model> load_model(const std::string &file, const std::string &contents);

/// The number of threads that evaluations on the CPU use in this process.
void set_num_threads(int nthreads);

}    // namespace PWMLFF

#endif
