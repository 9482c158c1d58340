// SPDX-License-Identifier: GPL-2.0-or-later

// A few edges of one center in the scratch of a team: what all channels share, computed with an
// edge in each lane.

#pragma once

#include "../../../core/team.h"
#include "../../../math/sphere_sums.h"
#include "../../../math/spline_terms.h"
#include "types.h"

#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// How the lanes of a team share edges and the channels of an item: `across` lanes side by side
/// have the channels of one edge, `size` of them each.
template <class T> struct MaceLanes {
  static constexpr int size = Vector128<T>::size, most = 32;
  int across, ngroups, group;
  int begin, end;     // channels of the item
  int first, step;    // those of a lane: first, first + step, ..

  template <class Team> PWMLFF_FORMULA MaceLanes(const Team &team, int row, int chunk)
  {
    across = lanes_across(row, team.lanes());
    ngroups = team.lanes() / across;
    group = team.lane() / across;
    begin = chunk * channels(row);
    first = begin + team.lane() % across * size;
    end = begin + channels(row);
    step = across * size;
  }

  /// Channels of an item: as many as the lanes of a GPU's team have at once.
  PWMLFF_FORMULA static int channels(int row) { return lanes_across(row, most) * size; }
  PWMLFF_FORMULA static int nchunks(int row) { return row / channels(row); }

 private:
  PWMLFF_FORMULA static int lanes_across(int row, int lanes)
  {
    int result = 1;
    while (2 * result <= lanes && row / size % (2 * result) == 0) result *= 2;
    return result;
  }
};

template <class T, int SIZE> struct MaceTile {
  int n;    // edges
  /// Where the functions of an edge begin: the first of six rows of a table, or values, and behind
  /// them derivatives, of an edge without.
  const T *radial[SIZE];
  int tabulated[SIZE];    // whether it has a table
  int neighbor[SIZE], species[SIZE];
  T axis[3][SIZE];    // of the harmonics: z, x, y of the direction to the center
  T weight[5][SIZE], slope_weight[5][SIZE];    // of differences of coefficients

  /// Load edges first .. first+SIZE-1 of an item, as far as there are so many, and their harmonics.
  /// @param y  [ncomponents, SIZE]
  template <class Team>
  PWMLFF_FORMULA void load(const Team &team, const MaceGpuModel<T> &model,
                           const MaceGpuLayer<T> &layer, const GpuList &list,
                           const MaceGpuChunk<T> &chunk, std::int64_t item, int first, T *y)
  {
    const int left = chunk.count[item] - first;
    if (team.lane() == 0) n = left < SIZE ? left : SIZE;
    for (int e = team.lane(); e < SIZE && e < left; e += team.lanes())
      load_edge(model, layer, list, chunk, item, first + e, e, y);
    team.sync();
  }

  /// value[v] and slope[v] of channels k .. k+V-1 in the columns of a path.
  /// @param column  k included
  template <int V>
  PWMLFF_FORMULA void functions(int e, int columns, int column, T *value, T *slope) const
  {
    const T *const at = global_pointer(radial[e]) + column;
    if (tabulated[e] == 0) {
      load_together<V>(at, value);
      load_together<V>(at + columns, slope);
      return;
    }
    T rows[6][V];
    PWMLFF_UNROLL_ALL
    for (int k = 0; k < 6; ++k) load_together<V>(at + k * columns, rows[k]);
    for (int v = 0; v < V; ++v) {
      value[v] = rows[0][v];
      slope[v] = T(0);
    }
    add_spline<V>([&](int k, int v) { return rows[k][v]; }, weight[0] + e, slope_weight[0] + e,
                  SIZE, value, slope);
  }

 private:
  PWMLFF_FORMULA void load_edge(const MaceGpuModel<T> &model, const MaceGpuLayer<T> &layer,
                                const GpuList &list, const MaceGpuChunk<T> &chunk,
                                std::int64_t item, int k, int e, T *y)
  {
    const std::int64_t place = item * chunk.stride + k;
    T edge[4];
    load_together<4>(chunk.edge + 4 * place, edge);
    const T r = edge[3], inv = T(1) / r;
    const int found = chunk.neighbor[place];
    const int j = found < 0 ? chunk.short_edge[~found].row : found;
    neighbor[e] = j;
    species[e] = list.species[j];
    for (int c = 0; c < 3; ++c) axis[(c + 1) % 3][e] = -edge[c] * inv;
    tabulated[e] = found >= 0 ? 1 : 0;
    if (found < 0) {
      radial[e] = chunk.short_radial + 2 * static_cast<std::int64_t>(~found) * layer.columns;
    } else {
      const MaceTable<T> &table =
          layer.tables[model.pair_of(list.species[chunk.order[item]], species[e])];
      const T at = (r - static_cast<T>(table.start)) * static_cast<T>(table.per_spacing);
      int i = static_cast<int>(at);
      if (i > table.intervals - 1) i = table.intervals - 1;
      if (i < 0) i = 0;
      radial[e] = table.coef + static_cast<std::int64_t>(i) * layer.columns;
      T w[5], s[5];
      spline_weights<T>(at - static_cast<T>(i), static_cast<T>(table.per_spacing), w, s);
      for (int c = 0; c < 5; ++c) {
        weight[c][e] = w[c];
        slope_weight[c][e] = s[c];
      }
    }
    y[e] = T(1);
    const T u[3] = {axis[0][e], axis[1][e], axis[2][e]};
    harmonics_by_place(model.sphere, model.largest, u,
                       [&](int p, T value) { y[(p + 1) * SIZE + e] = value; });
  }
};

/// A coupling of an edge.
/// @param y  [ncomponents, SIZE] harmonics, from that edge on
template <int SIZE, class T>
PWMLFF_FORMULA T couple_edge(const MaceGpuCouplings<T> &couplings, int target, const T *y)
{
  T sum = T(0);
  const int end = couplings.first_by_target[target + 1];
  for (int k = couplings.first_by_target[target]; k < end; ++k) {
    const MaceGpuTerm<T> term = couplings.by_target[k];
    sum += term.value * y[term.y * SIZE];
  }
  return sum;
}

}    // namespace pwmlff
