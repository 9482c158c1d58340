// SPDX-License-Identifier: GPL-2.0-or-later

// Forces, virials and ZBL: a lane for each edge.

#pragma once

#include "formulas.h"

#include "../../../core/gpu/pair_partners.h"
#include "../../../core/virial_terms.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

template <class T> struct NepForces {
  static constexpr int lanes = 32;
  static constexpr int resident = sizeof(T) == 8 ? 384 : 512;
  static constexpr const char *name = "NepForces";
  NepGpuModel<T> model;
  GpuList list;
  NepGpuChunk<T> chunk;
  double *atom_energy;    // [ncenters] ZBL is added
  double *virial;         // [ncenters, 9] by item, xx xy xz yx yy yz zx zy zz
  GpuPartners<T> partners;
  RowSums sums;    // added to

  static std::size_t scratch_bytes(const NepGpuModel<T> &model)
  {
    return sizeof(T) * model.slopes();
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const T *const slopes = load_slopes(team, item);
    const std::int64_t i = chunk.order[item];
    const NepGpuPair<T> *const pairs = model.pairs + list.species[i] * model.nspecies;
    const int near = chunk.count[2 * item], count = near + chunk.count[2 * item + 1];
    double repulsion = 0.0, own[3] = {0.0, 0.0, 0.0};
    double v[9] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    for (int k = team.lane(); k < count; k += team.lanes()) {
      const Edge edge(chunk, item, k, near);
      const std::int64_t j = list.candidate[edge.candidate];
      const NepGpuPair<T> &pair = pairs[edge.kind];
      const double d[3] = {edge.r[0], edge.r[1], edge.r[2]};
      double f[3];    // on the neighbor
      differentiate(pair, edge, slopes, f);
      if (edge.near && pair.zbl.reach > 0.0) add_zbl(pair.zbl, i, j, f, repulsion);
      if (!edge.near && chunk.radial && j < chunk.ncenters) {
        const NepGpuPair<T> &back = model.pairs[edge.kind * model.nspecies + list.species[i]];
        const T along = radial_slope(back, edge.r[3], chunk.radial + j * model.radial_size());
        // As the neighbor has it, so that the two forces cancel to the last bit.
        for (int c = 0; c < 3; ++c) own[c] += static_cast<double>(along * edge.u[c]);
      } else {
        partners.leave(team, edge.candidate, j, f, sums.force);
      }
      for (int c = 0; c < 3; ++c) own[c] -= f[c];
      for (int c = 0; c < 9; ++c) v[c] += d[c / 3] * f[c % 3];
      spread_virial(team, d, f, i, j, sums.atom_virial, sums.centroid_virial);
    }
    repulsion = team.sum(repulsion);
    for (int c = 0; c < 3; ++c) own[c] = team.sum(own[c]);
    for (int c = 0; c < 9; ++c) v[c] = team.sum(v[c]);
    if (team.lane() != 0) return;
    atom_energy[i] += repulsion;
    for (int c = 0; c < 3; ++c) team.add(sums.force + 3 * i + c, own[c]);
    for (int c = 0; c < 9; ++c) virial[9 * (chunk.base + item) + c] = v[c];
  }

  /// Edge k of an item.
  struct Edge {
    PWMLFF_HOST_DEVICE Edge(const NepGpuChunk<T> &chunk, std::int64_t item, int k, int nnear) :
        near(k < nnear)
    {
      const std::int64_t e = chunk.index(item, k, nnear);
      candidate = chunk.candidate[e];
      kind = chunk.kind[e];
      load_together<4>(chunk.edge + 4 * e, r);
      const T inv = T(1) / r[3];
      for (int c = 0; c < 3; ++c) u[c] = r[c] * inv;
    }
    std::int64_t candidate;
    int kind;
    bool near;
    T r[4], u[3];    // r_ij and its length, and r_ij/r
  };

  /// Those of an item, to scratch.
  template <class Team>
  PWMLFF_HOST_DEVICE const T *load_slopes(const Team &team, std::int64_t item) const
  {
    T *const slopes = team.template scratch<T>();
    for (int k = team.lane(); k < model.slopes(); k += team.lanes())
      slopes[k] = chunk.slope[item * model.slopes() + k];
    team.sync();
    return slopes;
  }

  /// @param f  [3] the force on the neighbor but for ZBL, -dE/dr_ij
  PWMLFF_HOST_DEVICE void differentiate(const NepGpuPair<T> &pair, const Edge &edge,
                                        const T *slopes, double *f) const
  {
    const T r = edge.r[3], inv = T(1) / r, *const u = edge.u;
    T by_u[3] = {}, along = radial_slope(pair, r, slopes);
    if (edge.near && model.degree > 0) along += angular_slope(pair, r, u, slopes, by_u);
    const T factor = along - (by_u[0] * u[0] + by_u[1] * u[1] + by_u[2] * u[2]) * inv;
    for (int c = 0; c < 3; ++c) f[c] = -(factor * u[c] + by_u[c] * inv);
  }

 private:
  /// dE/dr by the radial part.
  PWMLFF_HOST_DEVICE T radial_slope(const NepGpuPair<T> &pair, T r, const T *slopes) const
  {
    const NepCutoff<T> cutoff(r, pair.radial.per_cutoff);
    T sum = T(0);
    for (int group = 0; group < model.radial_groups; ++group) {
      const NepFunctions<T> g(pair.radial, group, model.kradial, cutoff);
      T by_g[NEP_GROUP];
      load_together<NEP_GROUP>(slopes + group * NEP_GROUP, by_g);
      for (int n = 0; n < NEP_GROUP; ++n) sum += by_g[n] * g.slope[n];
    }
    return sum;
  }

  /// @param by_u  dE/du by the angular part, with free components, is added
  /// @return dE/dr by it
  PWMLFF_HOST_DEVICE T angular_slope(const NepGpuPair<T> &pair, T r, const T *u, const T *slopes,
                                     T *by_u) const
  {
    const NepCutoff<T> cutoff(r, pair.angular.per_cutoff);
    T along = T(0);
    for (int group = 0; group < model.angular_groups; ++group) {
      const NepFunctions<T> g(pair.angular, group, model.kangular, cutoff);
      const T *const by_a = slopes + model.radial_size() + group * NEP_GROUP;
      const auto factors = [&](int place, T &slope, T &value) {
        T by_moment[NEP_GROUP];
        load_together<NEP_GROUP>(by_a + place * model.row(), by_moment);
        slope = value = T(0);
        for (int n = 0; n < NEP_GROUP; ++n) {
          slope += by_moment[n] * g.slope[n];
          value += by_moment[n] * g.value[n];
        }
      };
      along += sum_harmonics(model.sphere, model.degree, u, factors, by_u);
    }
    return along;
  }

  /// Half of the energy of a pair, all of it in float64, as forces are large.
  PWMLFF_HOST_DEVICE void add_zbl(const ZblPair &zbl, std::int64_t i, std::int64_t j, double *f,
                                  double &energy) const
  {
    double d[3];
    for (int c = 0; c < 3; ++c) d[c] = list.x[3 * j + c] - list.x[3 * i + c];
    const double r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    if (!(r < zbl.reach)) return;
    const ZblTerms terms(zbl, r);
    energy += 0.5 * terms.value;
    for (int c = 0; c < 3; ++c) f[c] -= 0.5 * terms.slope / r * d[c];
  }
};

}    // namespace pwmlff
