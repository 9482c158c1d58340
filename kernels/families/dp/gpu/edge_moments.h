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
            for (int k = 0; k < n; ++k) add(tile, k, table_value(table, tile, k), sum);
            continue;
          }
          for (int k = 0; k < n; ++k) {
            T value = T(0);
            if (tile.row[k] < 0) {
              const NetValue exact =
                  evaluate_net(team, pair, tile.environment[k][0], model.widest_embedding, net);
              if (m < model.width) value = static_cast<T>(exact.value[m] - pair.g_rmax[m]);
            } else if (mine) {
              value = table_value(global_pointer(pair.table) + m, tile, k);
            }
            add(tile, k, value, sum);
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
  PWMLFF_HOST_DEVICE T table_value(const T *column, const Tile &tile, int k) const
  {
    T value, slope;
    pwmlff::table_value(column, model.padded, tile, k, value, slope);
    return value;
  }
  PWMLFF_HOST_DEVICE static void add(const Tile &tile, int k, T value, T *sum)
  {
    for (int c = 0; c < 4; ++c) sum[c] += tile.environment[k][c] * value;
  }
};

}    // namespace pwmlff
