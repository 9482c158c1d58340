// SPDX-License-Identifier: GPL-2.0-or-later

// The components of a virial (evaluation.h), and what an edge adds to those of atoms.

#pragma once

#include "host_device.h"

#include <cstdint>

namespace pwmlff {

/// A team of one: no other thread adds to what it adds to.
struct Alone {
  PWMLFF_FORMULA void add(double *target, double value) const { *target += value; }
};

/// Where component k of xx yy zz xy xz yz yx zx zy is in a 3x3 matrix, row by row.
PWMLFF_FORMULA constexpr int virial_component(int k)
{
  constexpr int place[9] = {0, 4, 8, 1, 2, 5, 3, 6, 7};
  return place[k];
}

/// The matrix [9], row by row, of six components xx yy zz xy xz yz.
PWMLFF_FORMULA void matrix_of(const double *six, double *matrix)
{
  for (int k = 0; k < 9; ++k) matrix[virial_component(k)] = six[k < 6 ? k : k - 3];
}

/// Add what is an atom's own, [9] row by row, to the virials of atoms.
/// @param atom_virial, centroid_virial  as below
PWMLFF_FORMULA void add_own_virial(std::int64_t i, const double *virial, double *atom_virial,
                                   double *centroid_virial)
{
  if (atom_virial)
    for (int k = 0; k < 6; ++k) atom_virial[6 * i + k] += virial[virial_component(k)];
  if (centroid_virial)
    for (int k = 0; k < 9; ++k) centroid_virial[9 * i + k] += virial[virial_component(k)];
}

/// Add r_ij (x) f_ij of an edge to the virials of atoms: to both ends alike, or to the neighbor.
/// @param team  adds (team.h)
/// @param d, f  [3] r_ij and the force on the neighbor
/// @param atom_virial     [., 6] or null
/// @param centroid_virial [., 9] or null
template <class Team>
PWMLFF_FORMULA void spread_virial(const Team &team, const double *d, const double *f,
                                  std::int64_t i, std::int64_t j, double *atom_virial,
                                  double *centroid_virial)
{
  double term[9];
  for (int k = 0; k < 9; ++k) term[k] = d[virial_component(k) / 3] * f[virial_component(k) % 3];
  if (atom_virial)
    for (int k = 0; k < 6; ++k) {
      team.add(atom_virial + 6 * i + k, 0.5 * term[k]);
      team.add(atom_virial + 6 * j + k, 0.5 * term[k]);
    }
  if (centroid_virial)
    for (int k = 0; k < 9; ++k) team.add(centroid_virial + 9 * j + k, term[k]);
}

}    // namespace pwmlff
