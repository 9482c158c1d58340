// SPDX-License-Identifier: GPL-2.0-or-later

// What training a NEP needs: energies, forces and virials of labelled structures, and the gradient
// by the parameters of
//
//   S = a E + v . F + w : W
//
// with forces F = -dE/dx and W = sum of r (x) F of pairs, so that
//
//   dS/dp = a dE/dp - (dE/dp)'        for each parameter p
//
// where ' is the derivative as each r_ij moves at the rate t_ij = v_j - v_i + w^T r_ij. dE/dp and
// its derivative come out of one pass in numbers with a derivative. q_scaler and ZBL are fixed,
// and so is root_epsilon but for Born charges. The formulas of E are those of network.h. With
// charges c_i(p), dE/dp of the Coulomb energy is the sum of phi_i dc_i/dp, and (dE/dp)' that of
// phi_i (dc_i/dp)' + phi_i' dc_i/dp, for which another pass comes first (cpu/charge_rates.h). Born
// charges Z are derivatives of charges, and with b : Z of all atoms
//
//   dS/dp = sum over i of beta_i dc_i/dp + (dc_i/dp)'     r_ij at the rate (b_i - b_j)^T r_ij / 2
//
// times root_epsilon, with the trace of b_i less its mean for beta_i.

#pragma once

#include "../../core/export.h"
#include "network.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pwmlff {

/// A structure with its edges, in the order of centers, then species of neighbors.
struct NepFrame {
  int natoms = 0;
  const std::int32_t *species = nullptr;    // [natoms]
  const double *rij = nullptr;              // [nedges, 3] angstrom
  const std::int32_t *j = nullptr;          // [nedges] atom at the other end
  const std::int32_t *count = nullptr;      // [natoms, nspecies] edges
  // For models with charges:
  const double *x = nullptr;       // [natoms, 3] angstrom
  const double *cell = nullptr;    // [3, 3] edges of the box, row by row
};

/// Keeps its scratch between calls: not for two threads at once.
class PWMLFF_KERNELS_API NepTraining {
 public:
  /// @param single  in float32, but for positions and sums over atoms
  /// @param present [nspecies] the species that occur in structures
  /// @throws std::runtime_error as make_nep_engine()
  NepTraining(const NepNetwork &network, bool single, const std::vector<bool> &present);
  ~NepTraining();

  /// Number of parameters, which are those of NepNetwork::learned().
  std::size_t size() const { return size_; }
  void set_parameters(const double *parameters);

  /// @param q [natoms, ndescriptors] out, before scaling
  void describe(const NepFrame &frame, double *q);

  /// Of a model with charges.
  /// @param charge [natoms] out, e, before their mean is taken off
  void find_charges(const NepFrame &frame, double *charge);

  /// @param force   [natoms, 3] out, eV/angstrom
  /// @param virial  [3, 3] out, eV
  /// @param born    [natoms, 3, 3] out, e, of a model with charges; or null
  /// @return the energy, eV
  double evaluate(const NepFrame &frame, double *force, double *virial, double *born = nullptr);

  /// @param v         [natoms, 3]
  /// @param w         [3, 3], whose first index is that of r
  /// @param neutral   S has, too, this times the square of the mean of the charges before it is
  ///                  taken off
  /// @param born      [natoms, 3, 3] S has, too, b : Z of each atom; or null
  /// @param gradient  [size()] dS/dparameters is added
  void add_gradient(const NepFrame &frame, double a, const double *v, const double *w,
                    double neutral, const double *born, double *gradient);

 private:
  void add_born_gradient(const NepFrame &frame, const double *born, double *gradient);

  struct Parts;
  std::unique_ptr<Parts> parts;
  std::size_t size_;
};

}    // namespace pwmlff
