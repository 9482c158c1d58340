// SPDX-License-Identifier: GPL-2.0-or-later

// Edges to moments: a lane for each column of T.

#pragma once

#include "edge_tile.h"

#include <cstdint>

namespace pwmlff {

template <class T> struct EdgeMoments {
  static constexpr int lanes = 32;
  static constexpr const char *name = "EdgeMoments";
  using Tile = EdgeTile<T, 32>;
  GpuModel<T> model;
  const int *species;    // [nrows]
  GpuChunk<T> chunk;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const GpuPair<T> *const pairs = model.pairs + species[chunk.order[item]] * model.nspecies;
    double *const net = team.template scratch<double>();
    Tile &tile = *tile_of<Tile>(team, model.widest_embedding);
    for (int m0 = 0; m0 < model.padded; m0 += team.lanes()) {
      const int m = m0 + team.lane();
      const bool mine = m < model.padded;
      double total[4] = {0.0, 0.0, 0.0, 0.0};
      T sum[4] = {T(0), T(0), T(0), T(0)};
      std::int64_t begin = item * chunk.stride;
      for (int b = 0; b < model.nspecies; ++b) {
        const GpuPair<T> &pair = pairs[b];
        if (!pair.present) continue;
        const std::int64_t sublist = item * model.nspecies + b;
        const int count = chunk.count[sublist];
        for (int t = 0; t < count; t += Tile::size) {
          const int n = count - t < Tile::size ? count - t : Tile::size;
          if (tile.load(team, chunk, pair.geometry, begin + t, n)) {
            if (!mine) continue;
            const T *const table = global_pointer(pair.table) + m;
            PWMLFF_UNROLL_BY_4
            for (int k = 0; k < n; ++k) add_by_table(table, tile, k, sum);
            continue;
          }
          for (int k = 0; k < n; ++k) {
            if (tile.row[k] >= 0) {
              if (mine) add_by_table(global_pointer(pair.table) + m, tile, k, sum);
              continue;
            }
            const NetValue exact =
                evaluate_net(team, pair, tile.environment(k)[0], model.widest_embedding, net);
            if (m < model.width)
              add(tile.environment(k), static_cast<T>(exact.value[m] - pair.g_rmax[m]), sum);
          }
        }
        if (mine)
          for (int c = 0; c < 4; ++c) total[c] += chunk.slots[4 * sublist + c] * pair.g_rmax[m];
        begin += count;
      }
      if (!mine) continue;
      for (int c = 0; c < 4; ++c)
        chunk.moments[(4 * item + c) * model.padded + m] = (total[c] + sum[c]) * model.scale;
    }
  }

 private:
  /// @param column  of the lane in the first row of the table
  PWMLFF_HOST_DEVICE void add_by_table(const T *column, const Tile &tile, int k, T *sum) const
  {
    constexpr int together = 16 / sizeof(T);
    T edge[(9 + together - 1) / together * together];    // environment and weights of the value
    load_together<sizeof edge / sizeof(T)>(tile.number[k], edge);
    const T *const coef = column + tile.row[k] * model.table_row;
    T value = coef[0], slope = T(0);
    add_spline<1>([&](int i, int) { return coef[i * model.table_row]; }, edge + 4,
                  tile.slope_weight(k), 1, &value, &slope);
    add(edge, value, sum);
  }
  PWMLFF_HOST_DEVICE static void add(const T *environment, T value, T *sum)
  {
    for (int c = 0; c < 4; ++c) sum[c] += environment[c] * value;
  }
};

}    // namespace pwmlff
