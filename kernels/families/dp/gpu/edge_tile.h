// SPDX-License-Identifier: GPL-2.0-or-later

// Edges that a team works on together, and embedding nets that a team evaluates.

#pragma once

#include "types.h"

#include "../../../core/team.h"
#include "../../../math/spline_terms.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// Value and derivative of an embedding net, evaluated by a whole team.
struct NetValue {
  const double *value, *slope;    // [M]
};

/// @param scratch [4*widest]; holds the result until the next call
template <class Team, class T>
PWMLFF_HOST_DEVICE NetValue evaluate_net(const Team &team, const GpuPair<T> &pair, double x,
                                         int widest, double *scratch)
{
  double *f = scratch, *d = f + widest, *nf = d + widest, *nd = nf + widest;
  team.sync();
  if (team.lane() == 0) {
    f[0] = x;
    d[0] = 1.0;
  }
  team.sync();
  for (int l = 0; l < pair.nlayers; ++l) {
    const GpuLayer<double> &layer = pair.layers[l];
    for (int o = team.lane(); o < layer.out; o += team.lanes()) {
      const double *const weights = global_pointer(layer.weight) + o;
      double z = global_pointer(layer.bias)[o], dz = 0.0;
      for (int i = 0; i < layer.in; ++i) {
        const double weight = weights[i * layer.out];
        z += weight * f[i];
        dz += weight * d[i];
      }
      const int i = o % layer.in;
      const double step = global_pointer(layer.step)[o], t = tanh(z);
      nf[o] = hidden_output(layer.residual, step, f[i], t);
      nd[o] = hidden_tangent(layer.residual, step, t, d[i], dz);
    }
    team.sync();
    double *const spent_f = f, *const spent_d = d;
    f = nf, d = nd, nf = spent_f, nd = spent_d;
  }
  return {f, d};
}

/// Edges that a team works on together, in its scratch.
template <class T, int N> struct EdgeTile {
  static constexpr int size = N;
  // Numbers of an edge, in an odd number of 128 bits, so that edges begin in different banks.
  static constexpr int of_all = ((14 * sizeof(T) + 15) / 16 | 1) * 16 / sizeof(T);

  /// Four of the environment, five weights of the value, five of the slope.
  alignas(16) T number[N][of_all];
  int row[N];

  PWMLFF_HOST_DEVICE const T *environment(int k) const { return number[k]; }
  PWMLFF_HOST_DEVICE const T *value_weight(int k) const { return number[k] + 4; }
  PWMLFF_HOST_DEVICE const T *slope_weight(int k) const { return number[k] + 9; }

  /// Read `n` edges from `begin` on.
  /// @return whether all of them are in the table
  template <class Team>
  PWMLFF_HOST_DEVICE bool load(const Team &team, const GpuChunk<T> &chunk, const PairGeometry &pair,
                               std::int64_t begin, int n)
  {
    int outside = 0;
    team.sync();
    for (int k = team.lane(); k < n; k += team.lanes()) {
      const std::int64_t e = begin + k;
      row[k] = chunk.row[e];
      outside += row[k] < 0;
      for (int c = 0; c < 4; ++c) number[k][c] = chunk.environment[4 * e + c];
      const bool upper = row[k] >= static_cast<int>(pair.segment[1].first);
      const T per_spacing = static_cast<T>(pair.segment[upper].inv_spacing);
      spline_weights<T>(chunk.place[e], per_spacing, number[k] + 4, number[k] + 9);
    }
    team.sync();
    return team.sum(outside) == 0;
  }

  static constexpr std::size_t bytes(int widest)
  {
    return 4 * static_cast<std::size_t>(widest) * sizeof(double) + sizeof(EdgeTile);
  }
};

/// The scratch of a team: room for a net, then a tile.
template <class Tile, class Team> PWMLFF_HOST_DEVICE Tile *tile_of(const Team &team, int widest)
{
  return reinterpret_cast<Tile *>(team.template scratch<double>() + 4 * widest);
}

}    // namespace pwmlff
