// SPDX-License-Identifier: GPL-2.0-or-later

// The way back of MaceEdgeSums: dE/dA to derivatives by features of neighbors, forces and virials.
// An item is up to MACE_PART edges of a center, the paths of one degree of features and some of
// their channels.

#pragma once

#include "../../../core/evaluation.h"
#include "../../../core/virial_terms.h"
#include "../radial_formulas.h"
#include "edge_tile.h"

namespace pwmlff {

/// Sums of N numbers over `across` lanes side by side, each of them in one of these lanes: a half
/// of the numbers goes to a half of the lanes, and so on.
/// @param value   [N] of each lane
/// @param first   out, the number that is in value[0]
/// @param end     out, behind the last one of the lane
template <int N, class Team, class T>
PWMLFF_FORMULA void scatter_sums(const Team &team, int across, T *value, int &first, int &end)
{
  if constexpr (N == 1) {
    for (int offset = across / 2; offset > 0; offset /= 2) {
      value[0] += team.exchange(value[0], offset);
      if (team.lane() & offset) end = first;
    }
  } else if (across > 1) {
    constexpr int half = (N + 1) / 2;
    const int offset = across / 2;
    const bool upper = team.lane() & offset;
    PWMLFF_UNROLL_ALL
    for (int k = 0; k < half; ++k) {
      const T low = value[k], high = k + half < N ? value[k + half] : T(0);
      value[k] = (upper ? high : low) + team.exchange(upper ? low : high, offset);
    }
    if (upper) first += half;
    else if (end > first + half) end = first + half;
    scatter_sums<half>(team, offset, value, first, end);
  }
}

/// @tparam INTO  at least the largest degree of features that enter; 4 where paths lead to degree 4
template <class T, int INTO> struct MaceEdgeGradients {
  static constexpr int lanes = 32;
  static constexpr int resident = INTO == 0 ? 512 : INTO * sizeof(T) > 4 ? 256 : 384;
  static constexpr const char *name = "MaceEdgeGradients";
  static constexpr int SIZE = 8, V = MaceLanes<T>::size;
  static constexpr int ENERGY = 0, FORCE = 1, VIRIAL = 4, NSUMS = 13;    // sums of the center
  using Tile = MaceTile<T, SIZE>;
  MaceGpuModel<T> model;
  MaceGpuLayer<T> layer;
  GpuList list;
  MaceGpuChunk<T> chunk;
  const T *features;      // as those of MaceEdgeSums
  T *by_features;         // [nrows, components that enter, row] added to; null in the first layer
  double *atom_energy;    // [ncenters] ZBL is added in the first layer
  double *virial;         // [items of the chunk, 9] added to, xx xy xz yx yy yz zx zy zz
  RowSums sums;           // added to

  PWMLFF_FORMULA int nparts() const { return (chunk.stride + MACE_PART - 1) / MACE_PART; }
  PWMLFF_FORMULA int nchunks() const { return MaceLanes<T>::nchunks(model.row); }
  PWMLFF_FORMULA int of_center() const { return nparts() * (layer.into + 1) * nchunks(); }
  std::int64_t nitems() const { return static_cast<std::int64_t>(chunk.nitems) * of_center(); }

  static std::size_t scratch_bytes(const MaceGpuModel<T> &model, const MaceGpuLayer<T> &layer)
  {
    int most = 0;
    for (int l = 0; l <= layer.into; ++l)
      most = std::max(most, layer.first_coupling[l + 1] - layer.first_coupling[l]);
    return sizeof(Tile) + sizeof(double) * SIZE * NSUMS +
           sizeof(T) * SIZE * (2 * model.ncomponents + 2 * most + 1);
  }

  template <class Team> PWMLFF_FORMULA void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t center = item % chunk.nitems;
    const int rest = static_cast<int>(item / chunk.nitems), count = chunk.count[center];
    const int which = rest % (nchunks() * (layer.into + 1)), degree = which / nchunks();
    const int begin = rest / (nchunks() * (layer.into + 1)) * MACE_PART;
    const int end = begin + MACE_PART < count ? begin + MACE_PART : count;
    if (begin >= end) return;
    const MaceLanes<T> mine(team, model.row, which % nchunks());
    switch (degree) {
      case 0:
        return back<1>(team, center, begin, end, mine);
      case 1:
        if constexpr (INTO >= 1) return back<3>(team, center, begin, end, mine);
        return;
      case 2:
        if constexpr (INTO >= 2) return back<5>(team, center, begin, end, mine);
        return;
      case 3:
        if constexpr (INTO >= 3) return back<7>(team, center, begin, end, mine);
        return;
      default:
        if constexpr (INTO >= 4) return back<9>(team, center, begin, end, mine);
    }
  }

 private:
  /// What the scratch of a team holds behind the tile, [., SIZE] each.
  struct Arrays {
    double *own;    // of the center
    int ncomponents, ncouplings;
    PWMLFF_FORMULA T *y() const { return reinterpret_cast<T *>(own + NSUMS * SIZE); }
    PWMLFF_FORMULA T *by_y() const { return y() + ncomponents * SIZE; }
    PWMLFF_FORMULA T *coupling() const { return y() + 2 * ncomponents * SIZE; }
    PWMLFF_FORMULA T *by_coupling() const { return coupling() + ncouplings * SIZE; }
    PWMLFF_FORMULA T *by_length() const { return by_coupling() + ncouplings * SIZE; }
  };

  template <int N1, class Team>
  PWMLFF_FORMULA void back(const Team &team, std::int64_t center, int begin, int end,
                           const MaceLanes<T> &mine) const
  {
    constexpr int l = N1 / 2;
    const int first = layer.first_coupling[l], ncouplings = layer.first_coupling[l + 1] - first;
    Tile &tile = *team.template scratch<Tile>();
    const Arrays at{reinterpret_cast<double *>(&tile + 1), model.ncomponents, ncouplings};
    for (int w = team.lane(); w < NSUMS * SIZE; w += team.lanes()) at.own[w] = 0.0;
    for (int t = begin; t < end; t += SIZE) {
      tile.load(team, model, layer, list, chunk, center, t, at.y());
      for (int w = team.lane(); w < ncouplings * SIZE; w += team.lanes())
        if (w % SIZE < tile.n)
          at.coupling()[w] =
              couple_edge<SIZE>(layer.couplings, first + w / SIZE, at.y() + w % SIZE);
      team.sync();
      by_channels<N1>(team, center, tile, at, mine);
      team.sync();
      const int *const first_by_y = layer.couplings.first_by_y + l * (model.ncomponents + 1);
      for (int w = team.lane(); w < model.ncomponents * SIZE; w += team.lanes()) {
        T sum = T(0);
        for (int k = first_by_y[w / SIZE]; w % SIZE < tile.n && k < first_by_y[w / SIZE + 1]; ++k) {
          const MaceGpuTerm<T> term = layer.couplings.by_y[k];
          sum += term.value * at.by_coupling()[(term.target - first) * SIZE + w % SIZE];
        }
        at.by_y()[w] = sum;
      }
      team.sync();
      for (int e = team.lane(); e < tile.n; e += team.lanes())
        add_forces(team, center, t + e, e, tile, at, l == 0 && mine.begin == 0);
      team.sync();    // before the tile is overwritten
    }
    write(team, center, at.own);
  }

  /// Derivatives by features, couplings and lengths.
  template <int N1, class Team>
  PWMLFF_FORMULA void by_channels(const Team &team, std::int64_t center, const Tile &tile,
                                  const Arrays &at, const MaceLanes<T> &mine) const
  {
    constexpr int l = N1 / 2;
    for (int e0 = 0; e0 < tile.n; e0 += mine.ngroups) {
      // All lanes take part in sums, those beyond the last edge with another one that is not kept.
      const bool is_edge = e0 + mine.group < tile.n;
      const int e = is_edge ? e0 + mine.group : e0;
      T along = T(0);
      for (int k = mine.first; k < mine.end; k += mine.step) {
        T h[N1][V], by_h[N1][V];
        PWMLFF_UNROLL_ALL
        for (int m1 = 0; m1 < N1; ++m1) {
          load_together<V>(global_pointer(features) + place(tile, e, l) + m1 * model.row + k,
                           h[m1]);
          for (int v = 0; v < V; ++v) by_h[m1][v] = T(0);
        }
        for (int p = layer.first_path[l]; p < layer.first_path[l + 1]; ++p)
          by_path<N1>(team, center, layer.paths[p], tile, at, is_edge ? e : ~e, k, mine, h, by_h,
                      along);
        if (!is_edge || !scatters(tile, e)) continue;
        T *const target = by_features + place(tile, e, l) + k;    // anew: registers are scarce
        PWMLFF_UNROLL_ALL
        for (int m1 = 0; m1 < N1; ++m1)
          for (int v = 0; v < V; ++v) team.add(target + m1 * model.row + v, by_h[m1][v]);
      }
      for (int offset = 1; offset < mine.across; offset *= 2) along += team.exchange(along, offset);
      if (is_edge && mine.first == mine.begin) at.by_length()[e] = along;
    }
  }

  /// Whether this edge adds to the features of its neighbor, which MaceEdgeSums else finds.
  PWMLFF_FORMULA bool scatters(const Tile &tile, int e) const
  {
    return by_features && !(chunk.item_of_row && chunk.item_of_row[tile.neighbor[e]] >= 0);
  }
  /// Where the features of degree l of a neighbor begin.
  PWMLFF_FORMULA std::int64_t place(const Tile &tile, int e, int l) const
  {
    if (features_are_by_species()) return static_cast<std::int64_t>(tile.species[e]) * model.row;
    return static_cast<std::int64_t>(tile.neighbor[e]) * layer.components(layer.into) * model.row +
           l * l * model.row;
  }
  PWMLFF_FORMULA bool features_are_by_species() const { return !by_features; }

  /// @param edge  of the tile; ~edge of one that is not kept
  template <int N1, class Team>
  PWMLFF_FORMULA void by_path(const Team &team, std::int64_t center, const MaceGpuPath &path,
                              const Tile &tile, const Arrays &at, int edge, int k,
                              const MaceLanes<T> &mine, const T (&h)[N1][V], T (&by_h)[N1][V],
                              T &along) const
  {
    switch (path.degree) {
      case 0:
        return by_degree<N1, 1>(team, center, path, tile, at, edge, k, mine, h, by_h, along);
      case 1:
        return by_degree<N1, 3>(team, center, path, tile, at, edge, k, mine, h, by_h, along);
      case 2:
        return by_degree<N1, 5>(team, center, path, tile, at, edge, k, mine, h, by_h, along);
      case 3:
        return by_degree<N1, 7>(team, center, path, tile, at, edge, k, mine, h, by_h, along);
      default:
        if constexpr (INTO >= 4)
          return by_degree<N1, 9>(team, center, path, tile, at, edge, k, mine, h, by_h, along);
    }
  }

  template <int N1, int N, class Team>
  PWMLFF_FORMULA void by_degree(const Team &team, std::int64_t center, const MaceGpuPath &path,
                                const Tile &tile, const Arrays &at, int edge, int k,
                                const MaceLanes<T> &mine, const T (&h)[N1][V], T (&by_h)[N1][V],
                                T &along) const
  {
    const int e = edge < 0 ? ~edge : edge;
    const int first = path.first - layer.first_coupling[N1 / 2];
    T value[V], slope[V], q[N1][V], by_coupling[N1 * N];
    tile.template functions<V>(e, layer.columns, path.column + k, value, slope);
    for (int m1 = 0; m1 < N1; ++m1)
      for (int v = 0; v < V; ++v) q[m1][v] = T(0);
    const T *const by_sums =
        global_pointer(chunk.sums) + (center * layer.nsums + path.sums) * model.row + k;
    PWMLFF_UNROLL_ALL
    for (int m = 0; m < N; ++m) {
      T g[V];
      load_together<V>(by_sums + static_cast<std::int64_t>(m) * path.step * model.row, g);
      PWMLFF_UNROLL_ALL
      for (int m1 = 0; m1 < N1; ++m1) {
        const T c = at.coupling()[(first + m1 * N + m) * SIZE + e];
        T sum = T(0);
        for (int v = 0; v < V; ++v) {
          q[m1][v] += c * g[v];
          sum += h[m1][v] * (value[v] * g[v]);
        }
        by_coupling[m1 * N + m] = sum;
      }
    }
    for (int m1 = 0; m1 < N1; ++m1)
      for (int v = 0; v < V; ++v) {
        along += slope[v] * h[m1][v] * q[m1][v];
        by_h[m1][v] += value[v] * q[m1][v];
      }
    int begin = 0, end = N1 * N;
    scatter_sums<N1 * N>(team, mine.across, by_coupling, begin, end);
    if (edge < 0) return;
    const bool more = k >= mine.begin + mine.step;    // on the CPU, of fewer lanes
    T *const target = at.by_coupling() + (first + begin) * SIZE + e;
    PWMLFF_UNROLL_ALL
    for (int n = 0; n < N1 * N; ++n)
      if (n < end - begin)
        target[n * SIZE] = more ? target[n * SIZE] + by_coupling[n] : by_coupling[n];
  }

  /// Force and virial of an edge, of which the derivatives by harmonics and length are known.
  template <class Team>
  PWMLFF_FORMULA void add_forces(const Team &team, std::int64_t center, int k, int e,
                                 const Tile &tile, const Arrays &at, bool first_paths) const
  {
    const std::int64_t i = chunk.order[center], j = tile.neighbor[e];
    const T u[3] = {tile.axis[0][e], tile.axis[1][e], tile.axis[2][e]};
    T by_u[3] = {T(0), T(0), T(0)};
    sum_harmonics(
        model.sphere, model.largest, u,
        [&](int place, T &g, T &h) {
          g = T(0);
          h = at.by_y()[(place + 1) * SIZE + e];
        },
        by_u);
    const T projection = by_u[0] * u[0] + by_u[1] * u[1] + by_u[2] * u[2];
    double along = static_cast<double>(at.by_length()[e]);
    T edge[4];
    load_together<4>(chunk.edge + 4 * (center * chunk.stride + k), edge);
    if (first_paths && layer.density) {
      T value[1], slope[1];
      tile.template functions<1>(e, layer.columns, layer.npaths * model.row, value, slope);
      along += chunk.by_density[center] * static_cast<double>(slope[0]);
    }
    if (first_paths && features_are_by_species() && model.zbl_reach)
      along += repel(list.species[i], tile.species[e], static_cast<double>(edge[3]),
                     at.own[ENERGY * SIZE + e]);
    double d[3], f[3];    // r_ij, and the force on the neighbor
    for (int c = 0; c < 3; ++c) {
      const int axis = (c + 1) % 3;    // u is -r_ij/r
      d[c] = static_cast<double>(edge[c]);
      f[c] = static_cast<double>((by_u[axis] - projection * u[axis]) / edge[3]) +
             along * static_cast<double>(u[axis]);
      at.own[(FORCE + c) * SIZE + e] -= f[c];
      team.add(sums.force + 3 * j + c, f[c]);
    }
    for (int c = 0; c < 9; ++c) at.own[(VIRIAL + c) * SIZE + e] += d[c / 3] * f[c % 3];
    spread_virial(team, d, f, i, j, sums.atom_virial, sums.centroid_virial);
  }

  /// Half of the energy of a pair is added; its derivative is returned.
  PWMLFF_FORMULA double repel(int a, int b, double r, double &energy) const
  {
    const int pair = a * model.nspecies + b;
    if (!(r < model.zbl_reach[pair])) return 0.0;
    double slope = 0.0;
    energy += 0.5 * model.scale *
              mace_zbl(model.zbl, model.zbl_strength[pair], model.zbl_length[pair],
                       model.zbl_reach[pair], r, slope);
    return 0.5 * model.scale * slope;
  }

  /// Add the sums of all lanes.
  template <class Team>
  PWMLFF_FORMULA void write(const Team &team, std::int64_t center, const double *own) const
  {
    const std::int64_t i = chunk.order[center];
    for (int n = 0; n < NSUMS; ++n) {
      double sum = 0.0;
      for (int e = team.lane(); e < SIZE; e += team.lanes()) sum += own[n * SIZE + e];
      sum = team.sum(sum);
      if (team.lane() != 0) continue;
      if (n >= VIRIAL) team.add(virial + 9 * center + n - VIRIAL, sum);
      else if (n >= FORCE) team.add(sums.force + 3 * i + n - FORCE, sum);
      else if (sum != 0.0) team.add(atom_energy + i, sum);
    }
  }
};

}    // namespace pwmlff
