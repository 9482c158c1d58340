// SPDX-License-Identifier: GPL-2.0-or-later

// The cells of a cell list: cubes of half the reach over all rows, which are kept in a table.
//
// Where there would be far more cells than rows, as around one atom far from all others, the table
// is smaller than space, and space is folded into it: cells a multiple of its length apart have one
// place. What the cells near a center hold beyond its neighbors is told by the distance, which is
// compared anyway. The table is at least as long as the cells that a center looks at, so it meets
// no place twice.

#pragma once

#include "../host_device.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pwmlff {

struct CellGrid {
  static constexpr int reach_in_cells = 2;    // atoms in cells i and i + 3 are farther apart
  static constexpr int window = 2 * reach_in_cells + 1;
  static constexpr double farthest = 1e12;    // position, in units of the reach; beyond: no number
  static constexpr double margin = 1e-9;      // so that rounding does not hide a pair; and of the
  static constexpr double rounding = 0x1p-48;    // extent, what rounding a position may make of it
  static constexpr double cells_per_row = 8;     // in a table, and some more
  static constexpr double cells_at_least = 64;

  double low[3], inv_size[3];
  std::int64_t last[3];    // the last cell of an axis; the first is 0
  int n[3];                // length of the table

  /// The box around positions, without those that are far away or no numbers.
  struct Bounds {
    double low[3] = {empty, empty, empty}, high[3] = {-empty, -empty, -empty};

    PWMLFF_HOST_DEVICE void add(const double *x, double reach)
    {
      for (int c = 0; c < 3; ++c)
        if (x[c] < farthest * reach && x[c] > -farthest * reach) widen(c, x[c], x[c]);
    }
    PWMLFF_HOST_DEVICE void add(const Bounds &others)
    {
      for (int c = 0; c < 3; ++c) widen(c, others.low[c], others.high[c]);
    }

   private:
    static constexpr double empty = 0x1p1023;

    PWMLFF_HOST_DEVICE void widen(int axis, double least, double most)
    {
      if (least < low[axis]) low[axis] = least;
      if (most > high[axis]) high[axis] = most;
    }
  };

  /// Cells from the lowest position on. What is not within the bounds lies in the first or last.
  CellGrid(std::int64_t nrows, const Bounds &bounds, double reach)
  {
    double cells[3];
    for (int c = 0; c < 3; ++c) {
      low[c] = bounds.low[c];
      const double high = bounds.high[c], extent = high >= low[c] ? high - low[c] : 0.0;
      inv_size[c] = 1.0 / (reach * (1.0 + margin) / reach_in_cells + rounding * extent);
      last[c] = static_cast<std::int64_t>(extent * inv_size[c]);
      cells[c] = static_cast<double>(last[c]) + 1.0;
    }
    const double most = cells_per_row * static_cast<double>(nrows) + cells_at_least;
    while (cells[0] * cells[1] * cells[2] > most) {
      double &longest = *std::max_element(cells, cells + 3);
      if (longest <= window) break;
      longest = std::max<double>(window, std::floor(0.8 * longest));
    }
    for (int c = 0; c < 3; ++c) n[c] = static_cast<int>(cells[c]);
  }
  CellGrid() = default;

  /// The cell along an axis.
  PWMLFF_HOST_DEVICE std::int64_t coordinate(int axis, double position) const
  {
    const double cell = (position - low[axis]) * inv_size[axis];
    if (!(cell > 0.0)) return 0;    // also where it is not a number
    return cell < static_cast<double>(last[axis]) ? static_cast<std::int64_t>(cell) : last[axis];
  }
  /// Its place along that axis of the table.
  PWMLFF_HOST_DEVICE int fold(int axis, std::int64_t cell) const
  {
    return static_cast<int>(cell < n[axis] ? cell : cell % n[axis]);    // few are that far
  }
  PWMLFF_HOST_DEVICE int index(int x, int y, int z) const { return (z * n[1] + y) * n[0] + x; }
  PWMLFF_HOST_DEVICE int place_of(const double *x) const
  {
    return index(fold(0, coordinate(0, x[0])), fold(1, coordinate(1, x[1])),
                 fold(2, coordinate(2, x[2])));
  }
  std::int64_t nplaces() const { return static_cast<std::int64_t>(n[0]) * n[1] * n[2]; }

  /// Look at all places where neighbors of a position may be, as ranges: visit(first, last).
  template <class Visit>
  PWMLFF_HOST_DEVICE void visit_places(const double *x, const Visit &visit) const
  {
    std::int64_t begin[3], end[3];
    for (int c = 0; c < 3; ++c) {
      const std::int64_t cell = coordinate(c, x[c]);
      begin[c] = cell > reach_in_cells ? cell - reach_in_cells : 0;
      end[c] = cell + reach_in_cells < last[c] ? cell + reach_in_cells : last[c];
    }
    const int first = fold(0, begin[0]), end_place = fold(0, end[0]);
    for (std::int64_t z = begin[2]; z <= end[2]; ++z)
      for (std::int64_t y = begin[1]; y <= end[1]; ++y) {
        const int row = index(0, fold(1, y), fold(2, z));
        if (first <= end_place) {
          visit(row + first, row + end_place);
        } else {    // around the end of the table
          visit(row, row + end_place);
          visit(row + first, row + n[0] - 1);
        }
      }
  }
};

}    // namespace pwmlff
