// SPDX-License-Identifier: GPL-2.0-or-later

// A neuroevolution potential (NEP) as plain arrays, the same for all forms of nep.txt.
//
// For center i of species a and its neighbors j of species b, r_ij = x_j - x_i, r its length:
//
//   fc(r)   = (1 + cos(pi r/rc)) / 2                          r < rc, else 0
//   f_k(r)  = fc(r) (T_k(2 (r/rc - 1)^2 - 1) + 1) / 2         T_k a Chebyshev polynomial
//   g_n(r)  = sum over k of c[a,b,n,k] f_k(r)                 with rc and c of the radial or the
//                                                             angular part
//   q_n     = sum over j of g_n(r)                            radial part
//   A_nlm   = sum over j of g_n(r) Y_lm(r_ij/r)               angular part, orthonormal harmonics
//   q_nl    = sum over m of |A_nlm|^2                         l = 1 .. l_max
//   q_n(l1 l2 l3) = sum over m1, m2, m3 of (l1 l2 l3; m1 m2 m3) A_nl1m1 A_nl2m2 A_nl3m3
//                                                             with the Wigner 3j symbol
//   q_n(1111) = 7/15 q_n1^2
//   y       = q_scaler q, in the order that NepNetwork::ndescriptors() says
//   h       = tanh(weight0 y + bias0)                         and with two hidden layers once more
//   E_i     = last . h + shift + half of the ZBL energy of each pair
//
// The ZBL energy of a pair is in math/zbl.h. Lengths are in angstrom, energies in eV.
//
// Models with charges (mode 1 or 2) have besides, for a box that is periodic along all edges:
//
//   c_i     = last_charge . h                                    in e, h the hidden layer of E_i
//   q_i     = c_i - mean of all c of the box
//   alpha   = pi / (the largest radial cutoff)
//   E_k     = K 2 pi/V sum over k of exp(-k^2/4 alpha^2)/k^2 |S(k)|^2,  S = sum of q_i exp(i k.x_i)
//             over reciprocal lattice vectors 0 < |k| < 2 pi alpha,  K in math/coulomb.h
//   E_r     = K/2 sum over pairs i, j of q_i q_j erfc(alpha r)/r - K alpha/sqrt(pi) sum of q_i^2
//             over pairs nearer than their radial cutoff
//   E       = sum of E_i + E_k + E_r (mode 1), sum of E_i + E_k (mode 2)
//   phi_i   = dE/dq_i at fixed positions, V
//   Z_i     = root_epsilon (q_i + 1/2 sum over j of r_ij (x) dc_i/dr_ij
//                               - 1/2 sum over j of r_ji (x) dc_j/dr_ji)
//
// Of the Coulomb energy, q_i phi_i / 2 is that of atom i. Z_i is the Born effective charge: its
// first index is that of the dipole moment, its second that of the displacement.
//
// Sources: Fan et al. 2021, doi:10.1103/PhysRevB.104.104309 (NEP);
// Fan et al. 2022, doi:10.1063/5.0106617 (4-body and 5-body terms, this basis);
// Song et al. 2024, doi:10.1038/s41467-024-54554-x (networks by species);
// Liu et al. 2023, doi:10.1103/PhysRevB.108.054312 (NEP with ZBL);
// the sources of NEP_CPU 7319bdc and GPUMD d98135d (charges).

#pragma once

#include "../../math/zbl.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <span>
#include <string>
#include <vector>

namespace pwmlff {

/// Kinds of invariants of several A beyond q_nl, in the order of the flags behind l_max.
enum class NepInvariant { q222, q1111, q112, q123, q233, q134 };
constexpr int NEP_INVARIANTS = 6;

constexpr int NEP_LARGEST_DEGREE = 8;    // l_max, at most

/// The degrees l1, l2, l3 of an invariant of three A; for q1111 the degree 1.
constexpr std::array<std::array<int, 3>, NEP_INVARIANTS> NEP_DEGREES = {
    {{2, 2, 2}, {1, 1, 1}, {1, 1, 2}, {1, 2, 3}, {2, 3, 3}, {1, 3, 4}}};

/// Arrays are row by row, their last index is the fastest. Species are in the order of the file.
struct NepNetwork {
  int version = 0;               // 3, 4 or 5: what the file calls itself; no formula depends on it
  std::vector<int> atom_type;    // [nspecies] atomic numbers, distinct

  std::vector<double> cut_radial, cut_angular;    // [nspecies center, nspecies neighbor], symmetric
  int nradial = 0, nangular = 0;                  // numbers of functions g_n, at least 1
  int kradial = 0, kangular = 0;                  // numbers of functions f_k, at least 1
  int l_max = 0;                                  // 0 .. 8; 0: no q_nl
  std::array<bool, NEP_INVARIANTS> invariant{};    // which are on
  bool temperature = false;    // whether the last descriptor is the temperature, in K

  std::vector<double> c_radial;     // [nspecies center, nspecies neighbor, nradial, kradial]
  std::vector<double> c_angular;    // [nspecies center, nspecies neighbor, nangular, kangular];
                                    // empty where angular() is false
  std::vector<double> q_scaler;     // [ndescriptors]

  int nhidden0 = 0;               // width of the hidden layer
  int nhidden1 = 0;               // of the second one; 0: there is none
  std::vector<double> weight0;    // [nspecies, nhidden0, ndescriptors]
  std::vector<double> bias0;      // [nspecies, nhidden0], added
  std::vector<double> weight1;    // [nspecies, nhidden1, nhidden0]
  std::vector<double> bias1;      // [nspecies, nhidden1], added
  std::vector<double> last;       // [nspecies, width of the last hidden layer]
  std::vector<double> shift;      // [nspecies] eV, added

  // Of models with charges, which have one hidden layer.
  int charge_mode = 0;                // 1 or 2; 0: there are none
  std::vector<double> last_charge;    // [nspecies, nhidden0]
  double root_epsilon = 1.0;          // square root of the electronic dielectric constant

  // [nspecies, nspecies, 10] inner and outer radius, and a, b of four terms, for each pair,
  // symmetric; empty without ZBL
  std::vector<double> zbl_table;
  std::vector<ZblPair> zbl;    // [nspecies, nspecies] the same, which make_zbl() sets

  // What the file says besides, so that it can be written again.
  std::array<double, 2> neighbors = {500, 200};    // radial and angular, at most
  std::vector<double> zbl_line;    // values of its line zbl; 0 0 where zbl_table is at its end
  std::vector<double> unused;      // c_angular where angular() is false

  /// What a user should know of the file, a sentence each.
  std::vector<std::string> warnings;

  int nspecies() const { return static_cast<int>(atom_type.size()); }
  int nlast() const { return nhidden1 ? nhidden1 : nhidden0; }

  /// Number of descriptors: q_n by n; for l = 1 .. l_max q_nl by n; for each invariant that is on,
  /// in the order of NepInvariant, its values by n; and the temperature where the model has it.
  int ndescriptors() const
  {
    int blocks = l_max;
    for (const bool on : invariant) blocks += on;
    return nradial + nangular * blocks + temperature;
  }

  /// The largest degree l of A that a descriptor needs; l_max may be smaller.
  int largest_degree() const
  {
    int largest = l_max;
    for (int k = 0; k < NEP_INVARIANTS; ++k)
      if (invariant[k]) largest = std::max(largest, NEP_DEGREES[k][2]);
    return largest;
  }
  bool angular() const { return largest_degree() > 0; }

  /// alpha of models with charges, 1/angstrom.
  double screening() const
  {
    return std::numbers::pi / *std::max_element(cut_radial.begin(), cut_radial.end());
  }

  /// The distance beyond which nothing depends on an atom.
  double cutoff() const
  {
    double largest = *std::max_element(cut_radial.begin(), cut_radial.end());
    if (angular())
      largest = std::max(largest, *std::max_element(cut_angular.begin(), cut_angular.end()));
    for (const ZblPair &pair : zbl) largest = std::max(largest, pair.reach);
    return largest;
  }

  /// Set zbl.
  void make_zbl()
  {
    const std::size_t pairs = zbl_table.size() / 10;
    zbl.resize(pairs);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double *const row = &zbl_table[10 * pair];
      double a[4], b[4];
      for (int k = 0; k < 4; ++k) {
        a[k] = row[2 + 2 * k];
        b[k] = row[3 + 2 * k];
      }
      const std::size_t i = pair / atom_type.size(), j = pair % atom_type.size();
      zbl[pair] = zbl_pair(atom_type[std::min(i, j)], atom_type[std::max(i, j)], row[0], row[1],
                           cut_angular[pair], a, b);
    }
  }

  /// The numbers that are learned, in the order of a vector of all parameters and of a gradient.
  std::array<std::span<double>, 10> learned()
  {
    return {weight0, bias0,    weight1,   bias1,       last,
            shift,   c_radial, c_angular, last_charge, {&root_epsilon, charge_mode > 0 ? 1U : 0U}};
  }
};

}    // namespace pwmlff
