// SPDX-License-Identifier: GPL-2.0-or-later

// Back to the edges: small teams for each center, columns shared by their lanes.

#pragma once

#include "edge_tile.h"

#include <cstdint>

namespace pwmlff {

/// An item is a part of the tiles of a center: parts 0 .. nparts-1 of the first one, and so on.
template <class T> struct Differentiate {
  static constexpr int lanes = 8;
  static constexpr int resident = 512;    // BlockShape
  static constexpr const char *name = "Differentiate";
  using Tile = EdgeTile<T, 8>;
  GpuModel<T> model;
  const int *species;    // [nrows]
  GpuChunk<T> chunk;
  int nparts;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t part) const
  {
    const std::int64_t item = part / nparts;
    const GpuPair<T> *const pairs = model.pairs + species[chunk.order[item]] * model.nspecies;
    double *const net = team.template scratch<double>();
    Tile &tile = *tile_of<Tile>(team, model.widest_embedding);
    const Gradient gradient(team, chunk.moment_gradient + 4 * item * model.padded, model.padded);
    std::int64_t begin = item * chunk.stride;
    auto tile_of_part = static_cast<int>(part % nparts);    // its next, from the list of b on
    for (int b = 0; b < model.nspecies; ++b) {
      const GpuPair<T> &pair = pairs[b];
      const int count = chunk.count[item * model.nspecies + b];
      const int ntiles = (count + Tile::size - 1) / Tile::size;
      for (; tile_of_part < ntiles; tile_of_part += nparts) {
        const int t = tile_of_part * Tile::size;
        const int n = count - t < Tile::size ? count - t : Tile::size;
        const bool in_table = tile.load(team, chunk, pair.geometry, begin + t, n);
        for (int k = 0; k < n; ++k) {
          T sum[5] = {T(0), T(0), T(0), T(0), T(0)};
          if (in_table || tile.row[k] >= 0) by_table(team, pair, gradient, tile, k, sum);
          else by_net(team, pair, gradient, tile.environment(k), net, sum);
          for (int c = 0; c < 5; ++c) sum[c] = team.sum(sum[c]);
          if (team.lane() == 0)
            for (int c = 0; c < 5; ++c) chunk.derivative[5 * (begin + t + k) + c] = sum[c];
        }
      }
      tile_of_part -= ntiles;
      begin += count;
    }
  }

 private:
  static constexpr int V = 16 / sizeof(T);    // columns that a lane loads at once

  /// dE/dT of a center. Of the first columns a lane keeps its own: they are used for each edge.
  struct Gradient {
    static constexpr int KEPT = 32 / (lanes * V);    // vectors of a lane
    const T *values;                                 // [4, padded]
    T kept[KEPT][4][V];

    template <class Team>
    PWMLFF_HOST_DEVICE Gradient(const Team &team, const T *values, int padded) : values(values)
    {
      for (int p = 0; p < KEPT; ++p) {
        const int m = V * (team.lane() + p * team.lanes());
        for (int c = 0; m < padded && c < 4; ++c)
          load_together<V>(global_pointer(values) + c * padded + m, kept[p][c]);
      }
    }
  };

  // sum[0] += dE/dG . dG/dx, sum[1..4] += dE/dR~
  PWMLFF_HOST_DEVICE static void add(const T *gradient, int stride, T value, T slope,
                                     const T *environment, T *sum)
  {
    T by_g = T(0);
    for (int c = 0; c < 4; ++c) {
      const T g = gradient[c * stride];
      by_g += environment[c] * g;
      sum[c + 1] += g * value;
    }
    sum[0] += by_g * slope;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void by_table(const Team &team, const GpuPair<T> &pair,
                                   const Gradient &gradient, const Tile &tile, int k, T *sum) const
  {
    const T *const row = global_pointer(pair.table) + tile.row[k] * model.table_row;
    for (int p = 0; p < Gradient::KEPT; ++p) {
      const int m = V * (team.lane() + p * team.lanes());
      if (m < model.padded) columns(row + m, gradient.kept[p], tile, k, sum);
    }
    for (int m = V * (team.lane() + Gradient::KEPT * team.lanes()); m < model.padded;
         m += V * team.lanes()) {
      T further[4][V];
      for (int c = 0; c < 4; ++c)
        load_together<V>(global_pointer(gradient.values) + c * model.padded + m, further[c]);
      columns(row + m, further, tile, k, sum);
    }
  }

  /// V columns of the spline of an edge.
  PWMLFF_HOST_DEVICE void columns(const T *row, const T (&gradient)[4][V], const Tile &tile, int k,
                                  T *sum) const
  {
    T coef[6][V], value[V], slope[V];
    for (int i = 0; i < 6; ++i) load_together<V>(row + i * model.table_row, coef[i]);
    for (int v = 0; v < V; ++v) {
      value[v] = coef[0][v];
      slope[v] = T(0);
    }
    add_spline<V>([&](int i, int v) { return coef[i][v]; }, tile.value_weight(k),
                  tile.slope_weight(k), 1, value, slope);
    for (int v = 0; v < V; ++v)
      add(&gradient[0][v], V, value[v], slope[v], tile.environment(k), sum);
  }

  // The net's derivative is by R~_0: it goes where dE/dR~_0 goes.
  template <class Team>
  PWMLFF_HOST_DEVICE void by_net(const Team &team, const GpuPair<T> &pair, const Gradient &gradient,
                                 const T *environment, double *net, T *sum) const
  {
    const NetValue exact = evaluate_net(team, pair, environment[0], model.widest_embedding, net);
    for (int m = team.lane(); m < model.width; m += team.lanes())
      add(gradient.values + m, model.padded, static_cast<T>(exact.value[m] - pair.g_rmax[m]),
          static_cast<T>(exact.slope[m]), environment, sum);
    sum[1] += sum[0];
    sum[0] = T(0);
  }
};

}    // namespace pwmlff
