// SPDX-License-Identifier: GPL-2.0-or-later

// Forces, virials and ZBL: a lane for each edge.
//
// A force on a neighbor is an atomic addition or, by partners, waits for GatherForces.

#pragma once

#include "types.h"

#include "../../../core/gpu/pair_partners.h"
#include "../../../core/team.h"
#include "../../../core/virial_terms.h"

#include <cmath>
#include <cstdint>

namespace pwmlff {

template <class T> struct Forces {
  static constexpr int lanes = 32;
  static constexpr const char *name = "Forces";
  GpuModel<T> model;
  GpuList list;
  GpuChunk<T> chunk;
  double *atom_energy;    // [ncenters] ZBL is added
  double *virial;         // [ncenters, 9] by item, xx xy xz yx yy yz zx zy zz
  const double *grade;    // [ncenters] where sums.near_square is wanted
  GpuPartners<T> partners;
  RowSums sums;    // added to

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int i = chunk.order[item];
    const double *const xi = list.x + 3 * static_cast<std::int64_t>(i);
    double repulsion = 0.0, own[3] = {0.0, 0.0, 0.0},
           v[9] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    std::int64_t begin = item * chunk.stride;
    for (int b = 0; b < model.nspecies; ++b) {
      const GpuPair<T> &pair = model.pairs[list.species[i] * model.nspecies + b];
      const int count = chunk.count[item * model.nspecies + b];
      if (count == 0) continue;
      double common[4];    // dE/dR~ that all edges share, from the slots' part of the moments
      for (int c = 0; c < 4; ++c) {
        const T *const g = chunk.moment_gradient + (4 * item + c) * model.padded;
        double part = 0.0;
        for (int m = team.lane(); m < model.padded; m += team.lanes())
          part += g[m] * pair.g_rmax[m];
        common[c] = team.sum(part);
      }
      for (int k = team.lane(); k < count; k += team.lanes())
        edge(team, begin + k, i, xi, pair.geometry, common, repulsion, own, v);
      begin += count;
    }
    if (sums.near_square) spread_grade(team, item, i, xi);
    repulsion = team.sum(repulsion);
    for (int c = 0; c < 3; ++c) own[c] = team.sum(own[c]);
    for (int c = 0; c < 9; ++c) v[c] = team.sum(v[c]);
    if (team.lane() != 0) return;
    atom_energy[i] += repulsion;
    for (int c = 0; c < 3; ++c) team.add(sums.force + 3 * static_cast<std::int64_t>(i) + c, own[c]);
    for (int c = 0; c < 9; ++c) virial[9 * (chunk.base + item) + c] = v[c];
  }

 private:
  /// To the rows near a center.
  template <class Team>
  PWMLFF_HOST_DEVICE void spread_grade(const Team &team, std::int64_t item, int i,
                                       const double *xi) const
  {
    const std::int64_t begin = item * chunk.stride;
    const int count = chunk.edges(item);
    const double square = grade[i] * grade[i];
    double weights = 0.0;
    for (int k = team.lane(); k < count; k += team.lanes()) {
      const std::int64_t j = list.candidate[chunk.candidate[begin + k]];
      double r2 = 0.0;
      for (int c = 0; c < 3; ++c) {
        const double d = list.x[3 * j + c] - xi[c];
        r2 += d * d;
      }
      const double weight = near_weight(r2 / model.cutsq);
      weights += weight;
      team.add(sums.near_square + j, weight * square);
    }
    weights = team.sum(weights);
    if (team.lane() != 0) return;
    team.add(sums.near_square + i, square);
    sums.near_weight[i] = 1.0 + weights;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void edge(const Team &team, std::int64_t e, int i, const double *xi,
                               const PairGeometry &pair, const double *common, double &repulsion,
                               double *own, double *v) const
  {
    const int candidate = chunk.candidate[e];
    const std::int64_t j = list.candidate[candidate];
    double d[3], a[4], f[3];    // f: on the neighbor
    for (int c = 0; c < 3; ++c) d[c] = list.x[3 * j + c] - xi[c];
    const double r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    double along = 0.0;
    // Before all else, while few registers are in use; in float64, as forces are large.
    if (r < pair.zbl.reach) {
      const ZblTerms terms(pair.zbl, r);
      repulsion += 0.5 * terms.value;
      along = 0.5 * terms.slope;
    }
    const auto radial = radial_terms(r, pair);
    for (int c = 0; c < 4; ++c)
      a[c] = (chunk.derivative[5 * e + 1 + c] + common[c]) * pair.scale[c];
    along += chunk.derivative[5 * e] + a[0] * radial.s1;
    edge_gradient(along, a + 1, d, radial.inv_r, radial.q, radial.qp, f);
    for (int c = 0; c < 3; ++c) f[c] = -f[c];
    partners.leave(team, candidate, j, f, sums.force);
    for (int c = 0; c < 3; ++c) own[c] -= f[c];
    for (int c = 0; c < 9; ++c) v[c] += d[c / 3] * f[c % 3];
    spread_virial(team, d, f, i, j, sums.atom_virial, sums.centroid_virial);
  }
};

}    // namespace pwmlff
