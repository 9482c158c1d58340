// SPDX-License-Identifier: GPL-2.0-or-later

// Forces, virials and ZBL: a lane for each edge.

#pragma once

#include "formulas.h"

#include "../../../core/virial_terms.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

template <class T> struct NepForces {
  static constexpr int lanes = 32;
  static constexpr const char *name = "NepForces";
  NepGpuModel<T> model;
  GpuList list;
  NepGpuChunk<T> chunk;
  double *atom_energy;    // [ncenters] ZBL is added
  double *virial;         // [ncenters, 9] by item, xx xy xz yx yy yz zx zy zz
  RowSums sums;           // added to

  static std::size_t scratch_bytes(const NepGpuModel<T> &model)
  {
    return sizeof(T) * (model.slopes() + 2 * static_cast<std::size_t>(lanes) * model.places);
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    T *const slopes = team.template scratch<T>();
    for (int k = team.lane(); k < model.slopes(); k += team.lanes())
      slopes[k] = chunk.slope[item * model.slopes() + k];
    team.sync();

    const std::int64_t i = chunk.order[item];
    const NepGpuPair<T> *const pairs = model.pairs + list.species[i] * model.nspecies;
    const int near = chunk.count[2 * item], count = near + chunk.count[2 * item + 1];
    // In two passes: what the second one adds up would not fit into registers beside the first.
    for (int k = team.lane(); k < count; k += team.lanes())
      differentiate(team, pairs, i, edge(item, k, near), k < near, slopes);
    double repulsion = 0.0, own[3] = {0.0, 0.0, 0.0};
    double v[9] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    for (int k = team.lane(); k < count; k += team.lanes()) {
      const std::int64_t e = edge(item, k, near), j = chunk.neighbor[e];
      const NepGpuPair<T> &pair = pairs[list.species[j]];
      double d[3], f[3];    // f: on the neighbor
      for (int c = 0; c < 3; ++c) {
        d[c] = list.x[3 * j + c] - list.x[3 * i + c];
        f[c] = -(static_cast<double>(chunk.derivative[4 * e + 1 + c]) +
                 static_cast<double>(chunk.derivative[4 * e]) * d[c]);
      }
      if (k < near && pair.zbl.reach > 0.0) add_zbl(pair.zbl, d, f, repulsion);
      for (int c = 0; c < 3; ++c) {
        own[c] -= f[c];
        team.add(sums.force + 3 * j + c, f[c]);
      }
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

 private:
  PWMLFF_HOST_DEVICE std::int64_t edge(std::int64_t item, int k, int near) const
  {
    return item * chunk.stride + (k < near ? k : chunk.stride - 1 - (k - near));
  }

  /// Write the derivative by r_ij but ZBL, as factor r_ij + rest.
  template <class Team>
  PWMLFF_HOST_DEVICE void differentiate(const Team &team, const NepGpuPair<T> *pairs,
                                        std::int64_t i, std::int64_t e, bool near,
                                        const T *slopes) const
  {
    const std::int64_t j = chunk.neighbor[e];
    const NepGpuPair<T> &pair = pairs[list.species[j]];
    const T inv = T(1) / chunk.distance[e];
    T u[3], by_u[3] = {}, along = radial_slope(pair, chunk.distance[e], slopes);
    for (int c = 0; c < 3; ++c) u[c] = static_cast<T>(list.x[3 * j + c] - list.x[3 * i + c]) * inv;
    if (near && model.degree > 0)
      along += angular_slope(team, pair, chunk.distance[e], u, slopes, by_u);
    T *const out = chunk.derivative + 4 * e;
    out[0] = (along - (by_u[0] * u[0] + by_u[1] * u[1] + by_u[2] * u[2]) * inv) * inv;
    for (int c = 0; c < 3; ++c) out[1 + c] = by_u[c] * inv;
  }

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

  /// @param by_u  dE/du by the angular part, with free components
  /// @return dE/dr by it
  template <class Team>
  PWMLFF_HOST_DEVICE T angular_slope(const Team &team, const NepGpuPair<T> &pair, T r, const T *u,
                                     const T *slopes, T *by_u) const
  {
    const int row = model.row();
    T *const harmonics = team.template scratch<T>() + model.slopes() + team.lane();
    T *const weights = harmonics + model.places * team.lanes();    // of each harmonic
    nep_harmonics(model.sphere, model.degree, u,
                  [&](int place, T value) { harmonics[place * team.lanes()] = value; });
    const NepCutoff<T> cutoff(r, pair.angular.per_cutoff);
    T along = T(0);
    for (int group = 0; group < model.angular_groups; ++group) {
      const NepFunctions<T> g(pair.angular, group, model.kangular, cutoff);
      const T *const by_a = slopes + model.radial_size() + group * NEP_GROUP;
      for (int place = 0; place < model.places; ++place) {
        T by_moment[NEP_GROUP], weight = T(0), slope = T(0);
        load_together<NEP_GROUP>(by_a + place * row, by_moment);
        for (int n = 0; n < NEP_GROUP; ++n) {
          weight += by_moment[n] * g.value[n];
          slope += by_moment[n] * g.slope[n];
        }
        along += slope * harmonics[place * team.lanes()];
        T &sum = weights[place * team.lanes()];
        sum = group > 0 ? sum + weight : weight;
      }
    }
    nep_gradient(
        model.sphere, model.degree, u, [&](int place) { return weights[place * team.lanes()]; },
        by_u);
    return along;
  }

  /// Half of the energy of a pair, all of it in float64, as forces are large.
  PWMLFF_HOST_DEVICE static void add_zbl(const ZblPair &zbl, const double *d, double *f,
                                         double &energy)
  {
    const double r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    if (!(r < zbl.reach)) return;
    const ZblTerms terms(zbl, r);
    energy += 0.5 * terms.value;
    for (int c = 0; c < 3; ++c) f[c] -= 0.5 * terms.slope / r * d[c];
  }
};

}    // namespace pwmlff
