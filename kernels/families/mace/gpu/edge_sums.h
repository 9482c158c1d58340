// SPDX-License-Identifier: GPL-2.0-or-later

// Edges to sums over them. An item is a path of a center and some of its channels.

#pragma once

#include "edge_tile.h"

namespace pwmlff {

/// Forth, A and the density. Back, dE by the features of the center, from dE/dA of those neighbors
/// that are centers of the chunk: its own edges are theirs, in the other direction.
/// @tparam INTO  at least the largest degree of features that enter; 4 where paths lead to degree 4
template <class T, int INTO, bool BACK = false> struct MaceEdgeSums {
  static constexpr int lanes = 32;
  static constexpr int resident = 512;
  static constexpr const char *name = BACK ? "MaceEdgeSums, back" : "MaceEdgeSums";
  static constexpr int SIZE = 32, V = MaceLanes<T>::size;
  using Tile = MaceTile<T, SIZE>;
  MaceGpuModel<T> model;
  MaceGpuLayer<T> layer;
  GpuList list;
  MaceGpuChunk<T> chunk;
  const T *features;    // [nrows, components that enter, row], or [species, row] in the first layer
  bool by_species;
  T *by_features;    // [nrows, components that enter, row] added to, on the way back

  std::int64_t nitems() const { return static_cast<std::int64_t>(chunk.nitems) * of_center(); }
  PWMLFF_FORMULA int nchunks() const { return MaceLanes<T>::nchunks(model.row); }
  PWMLFF_FORMULA int of_center() const
  {
    return layer.npaths * nchunks() + (layer.density && !BACK);
  }

  static std::size_t scratch_bytes(const MaceGpuModel<T> &model)
  {
    constexpr int most = (2 * INTO + 1) * (2 * MACE_MOST_DEGREE + 1);
    return sizeof(Tile) + sizeof(T) * SIZE * (model.ncomponents + most);
  }

  template <class Team> PWMLFF_FORMULA void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t center = item % chunk.nitems, part = item / chunk.nitems;
    if (!BACK && part == layer.npaths * nchunks()) return add_density(team, center);
    const MaceGpuPath path = layer.paths[part / nchunks()];
    const MaceLanes<T> mine(team, model.row, static_cast<int>(part % nchunks()));
    switch (path.feature) {
      case 0:
        return sum<1>(team, center, path, mine);
      case 1:
        if constexpr (INTO >= 1) return sum<3>(team, center, path, mine);
        return;
      case 2:
        if constexpr (INTO >= 2) return sum<5>(team, center, path, mine);
        return;
      case 3:
        if constexpr (INTO >= 3) return sum<7>(team, center, path, mine);
        return;
      default:
        if constexpr (INTO >= 4) return sum<9>(team, center, path, mine);
    }
  }

 private:
  template <int N1, class Team>
  PWMLFF_FORMULA void sum(const Team &team, std::int64_t center, const MaceGpuPath &path,
                          const MaceLanes<T> &mine) const
  {
    switch (path.degree) {
      case 0:
        return sum_path<N1, 1>(team, center, path, mine);
      case 1:
        return sum_path<N1, 3>(team, center, path, mine);
      case 2:
        return sum_path<N1, 5>(team, center, path, mine);
      case 3:
        return sum_path<N1, 7>(team, center, path, mine);
      default:
        if constexpr (INTO >= 4) return sum_path<N1, 9>(team, center, path, mine);
    }
  }

  /// A_M = sum over edges of R sum over m1 of coupling[m1, M] h_m1; back, the same with M and m1
  /// exchanged, dE/dA for h, and harmonics of the other direction.
  template <int N1, int N, class Team>
  PWMLFF_FORMULA void sum_path(const Team &team, std::int64_t center, const MaceGpuPath &path,
                               const MaceLanes<T> &mine) const
  {
    constexpr int IN = BACK ? N : N1, OUT = BACK ? N1 : N;
    Tile &tile = *team.template scratch<Tile>();
    T *const y = reinterpret_cast<T *>(&tile + 1);       // [ncomponents, SIZE]
    T *const coupling = y + model.ncomponents * SIZE;    // [N1*N, SIZE]
    const int count = chunk.count[center];
    for (int k = mine.first; k < mine.end; k += mine.step) {
      T total[OUT][V];
      for (int m = 0; m < OUT; ++m)
        for (int v = 0; v < V; ++v) total[m][v] = T(0);
      for (int t = 0; t < count; t += SIZE) {
        tile.load(team, model, layer, list, chunk, center, t, y);
        couple(team, path.first, N1 * N, tile.n, y, coupling);
        for (int e = mine.group; e < tile.n; e += mine.ngroups) {
          if (BACK && chunk.item_of_row[tile.neighbor[e]] < 0) continue;
          T value[V], slope[V], x[V];
          tile.template functions<V>(e, layer.columns, path.column + k, value, slope);
          const T *const from = source(path, tile, e) + k;
          PWMLFF_UNROLL_ALL
          for (int i = 0; i < IN; ++i) {
            load_together<V>(from + i * (BACK ? path.step : 1) * model.row, x);
            for (int v = 0; v < V; ++v) x[v] *= value[v];
            PWMLFF_UNROLL_ALL
            for (int m = 0; m < OUT; ++m) {
              const T c = coupling[(BACK ? m * N + i : i * N + m) * SIZE + e];
              for (int v = 0; v < V; ++v) total[m][v] += c * x[v];
            }
          }
        }
        team.sync();    // before the tile is overwritten
      }
      PWMLFF_UNROLL_ALL
      for (int m = 0; m < OUT; ++m) {
        for (int offset = mine.across; offset < team.lanes(); offset *= 2)
          for (int v = 0; v < V; ++v) total[m][v] += team.exchange(total[m][v], offset);
        if (mine.group == 0) write(team, center, path, m, k, total[m]);
      }
    }
  }

  /// What is summed up of an edge, from the first channel on.
  PWMLFF_FORMULA const T *source(const MaceGpuPath &path, const Tile &tile, int e) const
  {
    const int j = tile.neighbor[e];
    if (BACK)
      return global_pointer(chunk.sums) +
             (static_cast<std::int64_t>(chunk.item_of_row[j]) * layer.nsums + path.sums) *
                 model.row;
    if (by_species) return features + static_cast<std::int64_t>(tile.species[e]) * model.row;
    return global_pointer(features) + feature(path, j, 0);
  }
  /// Where component m of the features of a path begins.
  PWMLFF_FORMULA std::int64_t feature(const MaceGpuPath &path, std::int64_t row, int m) const
  {
    return (row * layer.components(layer.into) + path.feature * path.feature + m) * model.row;
  }

  template <class Team>
  PWMLFF_FORMULA void write(const Team &team, std::int64_t center, const MaceGpuPath &path, int m,
                            int k, const T *total) const
  {
    if constexpr (BACK) {
      T *const to = by_features + feature(path, chunk.order[center], m) + k;
      for (int v = 0; v < V; ++v) team.add(to + v, static_cast<T>(path.parity) * total[v]);
    } else {
      store_together<V>(
          total, chunk.sums + (center * layer.nsums + path.sums + m * path.step) * model.row + k);
    }
  }

  /// Couplings first .. first+n-1 of all edges of a tile.
  template <class Team>
  PWMLFF_FORMULA void couple(const Team &team, int first, int n, int nedges, const T *y,
                             T *coupling) const
  {
    for (int w = team.lane(); w < n * SIZE; w += team.lanes()) {
      const int target = w / SIZE, e = w % SIZE;
      if (e < nedges) coupling[w] = couple_edge<SIZE>(layer.couplings, first + target, y + e);
    }
    team.sync();
  }

  template <class Team> PWMLFF_FORMULA void add_density(const Team &team, std::int64_t center) const
  {
    Tile &tile = *team.template scratch<Tile>();
    T *const y = reinterpret_cast<T *>(&tile + 1);
    const int count = chunk.count[center];
    double sum = 0.0;
    for (int t = 0; t < count; t += SIZE) {
      tile.load(team, model, layer, list, chunk, center, t, y);
      for (int e = team.lane(); e < tile.n; e += team.lanes()) {
        T value[1], slope[1];
        tile.template functions<1>(e, layer.columns, layer.npaths * model.row, value, slope);
        sum += static_cast<double>(value[0]);
      }
      team.sync();
    }
    sum = team.sum(sum);
    if (team.lane() == 0) chunk.density[center] = 1.0 / (1.0 + sum);
  }
};

}    // namespace pwmlff
