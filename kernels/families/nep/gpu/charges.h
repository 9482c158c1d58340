// SPDX-License-Identifier: GPL-2.0-or-later

// What charges of a NEP add beside the reciprocal part of their energy (math/ewald).
//
//   NepRealSpace  the part of pairs, and of each charge with itself, in float64
//   NepBorn       Born charges from the slopes of charges

#pragma once

#include "../../../math/coulomb.h"
#include "forces.h"

#include <cmath>
#include <cstdint>
#include <numbers>

namespace pwmlff {

/// A lane has a candidate. Each pair is seen from both ends: forces are whole, virials half of it.
struct NepRealSpace {
  static constexpr int lanes = 32;
  static constexpr const char *name = "NepRealSpace";
  GpuList list;
  int nspecies;
  const int *order;               // [items] centers
  const double *square_cutoff;    // [nspecies, nspecies]
  double alpha, self;             // of NepEwald
  const double *charge;           // [nrows]
  double *potential;              // [ncenters] added to
  double *virial;                 // [items, 9] out
  RowSums sums;                   // added to

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t i = order[item];
    const double *const cutoff = square_cutoff + list.species[i] * nspecies;
    const double factor = COULOMB * charge[i];
    double phi = 0.0, force[3] = {}, v[9] = {};
    const int end = list.first[(i + 1) * nspecies];
    for (int k = list.first[i * nspecies] + team.lane(); k < end; k += team.lanes()) {
      const std::int64_t j = list.candidate[k];
      double d[3], square = 0.0;
      for (int c = 0; c < 3; ++c) {
        d[c] = list.x[3 * j + c] - list.x[3 * i + c];
        square += d[c] * d[c];
      }
      if (!(square > 0.0 && square < cutoff[list.species[j]])) continue;
      const double r = std::sqrt(square), f = std::erfc(alpha * r) / r;
      const double g =    // df/dr, divided by r
          -(f + 2.0 * std::numbers::inv_sqrtpi * alpha * std::exp(-alpha * alpha * square)) /
          square;
      phi += COULOMB * charge[j] * f;
      for (int a = 0; a < 3; ++a) {
        const double along = factor * charge[j] * g * d[a];    // on the center
        force[a] += along;
        for (int b = 0; b < 3; ++b) v[3 * a + b] -= 0.5 * along * d[b];
      }
    }
    phi = team.sum(phi);
    for (double &component : force) component = team.sum(component);
    for (double &component : v) component = team.sum(component);
    if (team.lane() != 0) return;
    potential[i] += phi - self * charge[i];
    for (int c = 0; c < 3; ++c) sums.force[3 * i + c] += force[c];
    for (int c = 0; c < 9; ++c) virial[9 * item + c] = v[c];
    add_own_virial(i, v, sums.atom_virial, sums.centroid_virial);
  }
};

/// Z_i of ../network.h, with slopes of charges in the chunk.
template <class T> struct NepBorn {
  static constexpr int lanes = 32;
  static constexpr int resident = NepForces<T>::resident;
  static constexpr const char *name = "NepBorn";
  NepForces<T> forces;
  double root_epsilon;
  const double *charge;    // [ncenters]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const T *const slopes = forces.load_slopes(team, item);
    const std::int64_t i = forces.chunk.order[item];
    double own[9] = {};
    for (int c = 0; c < 9; c += 4) own[c] = team.lane() == 0 ? root_epsilon * charge[i] : 0.0;
    const NepGpuPair<T> *const pairs =
        forces.model.pairs + forces.list.species[i] * forces.model.nspecies;
    const int near = forces.chunk.count[2 * item];
    const int count = near + forces.chunk.count[2 * item + 1];
    for (int k = team.lane(); k < count; k += team.lanes()) {
      const typename NepForces<T>::Edge edge(forces.chunk, item, k, near);
      double f[3];    // -dc_i/dr_ij
      forces.differentiate(pairs[edge.kind], edge, slopes, f);
      const std::int64_t j = forces.list.candidate[edge.candidate];
      for (int c = 0; c < 9; ++c) {
        const double term = 0.5 * root_epsilon * static_cast<double>(edge.r[c / 3]) * f[c % 3];
        own[c] -= term;
        team.add(forces.sums.born + 9 * j + c, term);
      }
    }
    for (double &component : own) component = team.sum(component);
    if (team.lane() == 0)
      for (int c = 0; c < 9; ++c) team.add(forces.sums.born + 9 * i + c, own[c]);
  }
};

}    // namespace pwmlff
