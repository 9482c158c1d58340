// SPDX-License-Identifier: GPL-2.0-or-later

// The steps of a cell list as team kernels (core/team.h):
//
//   BoundRows                                            the box around all rows
//   CountInCells, PlaceInCells, SortCells, GatherCells   rows -> rows sorted by cell
//   SumChunks, ScanChunks, AddChunks                     exclusive sums of counts
//   SearchCells                                          rows near each center: count, then write
//
// Cells are numbered x fastest, so the cells that a center has to look at are one range of sorted
// rows for each pair of (y, z), or two (cell_grid.h).

#pragma once

#include "../team.h"
#include "cell_grid.h"

#include <cstddef>
#include <cstdint>

namespace pwmlff {

struct BoundRows {
  static constexpr int lanes = 32;
  static constexpr int size = 512;    // rows of an item
  static constexpr const char *name = "BoundRows";
  std::int64_t nrows;
  double reach;
  const double *x;             // [nrows, 3]
  CellGrid::Bounds *bounds;    // [items]

  static constexpr std::size_t scratch_bytes() { return lanes * sizeof(CellGrid::Bounds); }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t end = (item + 1) * size < nrows ? (item + 1) * size : nrows;
    auto *const of_lanes = team.template scratch<CellGrid::Bounds>();
    CellGrid::Bounds mine;
    for (std::int64_t r = item * size + team.lane(); r < end; r += team.lanes())
      mine.add(x + 3 * r, reach);
    of_lanes[team.lane()] = mine;
    for (int half = team.lanes() / 2; half > 0; half /= 2) {
      team.sync();
      if (team.lane() < half) of_lanes[team.lane()].add(of_lanes[team.lane() + half]);
    }
    if (team.lane() == 0) bounds[item] = of_lanes[0];
  }
};

struct CountInCells {
  static constexpr int lanes = 1;
  static constexpr const char *name = "CountInCells";
  CellGrid grid;
  const double *x;    // [nrows, 3]
  int *count;         // [cells] zero at first

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t row) const
  {
    team.add(&count[grid.place_of(x + 3 * row)], 1);
  }
};

struct PlaceInCells {
  static constexpr int lanes = 1;
  static constexpr const char *name = "PlaceInCells";
  CellGrid grid;
  const double *x;
  const int *start;    // [cells + 1]
  int *taken;          // [cells] zero at first
  int *sorted;         // [nrows] rows by cell, in any order within a cell

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t row) const
  {
    const int cell = grid.place_of(x + 3 * row);
    sorted[start[cell] + team.add(&taken[cell], 1)] = static_cast<int>(row);
  }
};

/// Rows of a cell in ascending order, so that the list does not depend on who came first.
struct SortCells {
  static constexpr int lanes = 1;
  static constexpr const char *name = "SortCells";
  const int *start;
  int *sorted;

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t cell) const
  {
    for (int k = start[cell] + 1; k < start[cell + 1]; ++k) {
      const int row = sorted[k];
      int place = k;
      for (; place > start[cell] && sorted[place - 1] > row; --place)
        sorted[place] = sorted[place - 1];
      sorted[place] = row;
    }
  }
};

/// Positions and species in the order of the cells.
struct GatherCells {
  static constexpr int lanes = 1;
  static constexpr const char *name = "GatherCells";
  const int *sorted;
  const double *x;
  const int *species;
  double *sorted_x;
  int *sorted_species;

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t place) const
  {
    const std::int64_t row = sorted[place];
    for (int c = 0; c < 3; ++c) sorted_x[3 * place + c] = x[3 * row + c];
    sorted_species[place] = species[row];
  }
};

/// Sums of chunks of `size` numbers.
struct SumChunks {
  static constexpr int lanes = 32;
  static constexpr int size = 1024;
  static constexpr const char *name = "SumChunks";
  std::int64_t n;
  const int *values;
  std::int64_t *sums;    // [chunks]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t chunk) const
  {
    const std::int64_t end = (chunk + 1) * size < n ? (chunk + 1) * size : n;
    int sum = 0;
    for (std::int64_t k = chunk * size + team.lane(); k < end; k += team.lanes()) sum += values[k];
    sum = team.sum(sum);
    if (team.lane() == 0) sums[chunk] = sum;
  }
};

/// Sums of chunks to the sums of all chunks before; the last entry becomes the sum of all.
struct ScanChunks {
  static constexpr int lanes = 32;
  static constexpr const char *name = "ScanChunks";
  std::int64_t nchunks;
  std::int64_t *sums;    // [nchunks + 1]

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t) const
  {
    std::int64_t before = 0;
    for (std::int64_t first = 0; first <= nchunks; first += team.lanes()) {
      const std::int64_t k = first + team.lane();
      std::int64_t all;
      const std::int64_t below = team.sum_below(k < nchunks ? sums[k] : std::int64_t{0}, all);
      if (k <= nchunks) sums[k] = before + below;
      before += all;
    }
  }
};

/// Counts to where each begins.
struct AddChunks {
  static constexpr int lanes = 32;
  static constexpr const char *name = "AddChunks";
  std::int64_t n;
  const std::int64_t *before;    // [chunks + 1]
  const int *counts;             // [n]
  int *first;                    // [n + 1]; may be counts

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t chunk) const
  {
    const std::int64_t begin = chunk * SumChunks::size;
    const std::int64_t end = begin + SumChunks::size < n ? begin + SumChunks::size : n;
    auto sum = static_cast<int>(before[chunk]);
    for (std::int64_t k0 = begin; k0 < end; k0 += team.lanes()) {
      const std::int64_t k = k0 + team.lane();
      int all;
      const int below = team.sum_below(k < end ? counts[k] : 0, all);
      if (k < end) first[k] = sum + below;
      sum += all;
    }
    if (end == n && team.lane() == 0) first[n] = sum;
  }
};

/// Without candidates: how many there are of each species. With them: what they are.
struct SearchCells {
  static constexpr int lanes = 32;
  static constexpr const char *name = "SearchCells";
  CellGrid grid;
  double reach_squared;
  int nspecies;
  const double *x;       // [nrows, 3]
  const int *species;    // [nrows]
  const int *start;      // [cells + 1]
  const int *sorted;     // [nrows]
  const double *sorted_x;
  const int *sorted_species;
  int *count;        // [ncenters*nspecies], or where the candidates begin
  int *candidate;    // null while counting
  int *most;         // candidates of one center

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t center) const
  {
    const double *const xi = x + 3 * center;
    int all = 0;
    for (int s = 0; s < nspecies; ++s) {
      int *const entry = count + center * nspecies + s;
      int n = 0;
      if (species[center] >= 0)
        n = search(team, center, xi, s, candidate ? candidate + *entry : nullptr);
      if (!candidate && team.lane() == 0) *entry = n;
      all += n;
    }
    if (!candidate && team.lane() == 0) team.raise(most, all);
  }

 private:
  template <class Team>
  PWMLFF_HOST_DEVICE int search(const Team &team, std::int64_t center, const double *xi, int s,
                                int *out) const
  {
    int n = 0;
    grid.visit_places(xi, [&](int first_place, int last_place) {
      const int end = start[last_place + 1];
      for (int k0 = start[first_place]; k0 < end; k0 += team.lanes()) {
        const int k = k0 + team.lane();
        bool close = false;
        if (k < end && sorted_species[k] == s && sorted[k] != center) {
          const double *const xj = sorted_x + 3 * static_cast<std::int64_t>(k);
          const double d[3] = {xj[0] - xi[0], xj[1] - xi[1], xj[2] - xi[2]};
          close = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] < reach_squared;
        }
        int found;
        const int before = team.count_below(close, found);
        if (close && out) out[n + before] = sorted[k];
        n += found;
      }
    });
    return n;
  }
};

}    // namespace pwmlff
