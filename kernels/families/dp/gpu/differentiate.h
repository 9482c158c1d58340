// SPDX-License-Identifier: GPL-2.0-or-later

// Back to the edges: a small team for each center, columns shared by its lanes.

#pragma once

#include "edge_tile.h"

#include <cstdint>

namespace pwmlff {

template <class T> struct Differentiate {
  static constexpr int lanes = 8;
  static constexpr const char *name = "Differentiate";
  using Tile = EdgeTile<T, 8>;
  GpuModel<T> model;
  const int *species;    // [nrows]
  GpuChunk<T> chunk;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const GpuPair<T> *const pairs = model.pairs + species[chunk.order[item]] * model.nspecies;
    const T *const gradient = chunk.moment_gradient + 4 * item * model.padded;
    double *const net = team.template scratch<double>();
    Tile &tile = *tile_of<Tile>(team, model.widest_embedding);
    std::int64_t begin = item * chunk.stride;
    for (int b = 0; b < model.nspecies; ++b) {
      const GpuPair<T> &pair = pairs[b];
      const int count = chunk.count[item * model.nspecies + b];
      for (int t = 0; t < count; t += Tile::size) {
        const int n = count - t < Tile::size ? count - t : Tile::size;
        const bool in_table = tile.load(team, chunk, pair.geometry, begin + t, n);
        for (int k = 0; k < n; ++k) {
          T sum[5] = {T(0), T(0), T(0), T(0), T(0)};
          if (in_table || tile.row[k] >= 0) by_table(team, pair, gradient, tile, k, sum);
          else by_net(team, pair, gradient, tile.environment[k], net, sum);
          for (int c = 0; c < 5; ++c) sum[c] = team.sum(sum[c]);
          if (team.lane() == 0)
            for (int c = 0; c < 5; ++c) chunk.derivative[5 * (begin + t + k) + c] = sum[c];
        }
      }
      begin += count;
    }
  }

 private:
  // sum[0] += dE/dG . dG/dx, sum[1..4] += dE/dR~
  PWMLFF_HOST_DEVICE void add(const T *gradient, int m, T value, T slope, const T *environment,
                              T *sum) const
  {
    T by_g = T(0);
    for (int c = 0; c < 4; ++c) {
      const T g = gradient[c * model.padded + m];
      by_g += environment[c] * g;
      sum[c + 1] += g * value;
    }
    sum[0] += by_g * slope;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void by_table(const Team &team, const GpuPair<T> &pair, const T *gradient,
                                   const Tile &tile, int k, T *sum) const
  {
    const T *const table = global_pointer(pair.table);
    for (int m = team.lane(); m < model.padded; m += team.lanes()) {
      T value, slope;
      table_value(table + m, model.padded, tile, k, value, slope);
      add(gradient, m, value, slope, tile.environment[k], sum);
    }
  }

  // The net's derivative is by R~_0: it goes where dE/dR~_0 goes.
  template <class Team>
  PWMLFF_HOST_DEVICE void by_net(const Team &team, const GpuPair<T> &pair, const T *gradient,
                                 const T *environment, double *net, T *sum) const
  {
    const NetValue exact = evaluate_net(team, pair, environment[0], model.widest_embedding, net);
    for (int m = team.lane(); m < model.width; m += team.lanes())
      add(gradient, m, static_cast<T>(exact.value[m] - pair.g_rmax[m]),
          static_cast<T>(exact.slope[m]), environment, sum);
    sum[1] += sum[0];
    sum[0] = T(0);
  }
};

}    // namespace pwmlff
