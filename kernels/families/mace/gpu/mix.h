// SPDX-License-Identifier: GPL-2.0-or-later

// Products that mix channels: rows of centers times a matrix, which may be another one for each
// species.

#pragma once

#include "../../../core/team.h"
#include "types.h"

#include <cstdint>

namespace pwmlff {

/// The center and species of work that is shared by centers of one species.
struct MaceSpan {
  int species, first, count;

  /// Span number n, of up to `size` rows (`of_item` for each item) of one species.
  PWMLFF_FORMULA MaceSpan(const int *segment, int of_item, int size, std::int64_t n) :
      species(0), first(0), count(0)
  {
    for (;; ++species) {
      const std::int64_t rows =
          static_cast<std::int64_t>(segment[species + 1] - segment[species]) * of_item;
      const std::int64_t spans = (rows + size - 1) / size;
      if (n < spans) {
        first = static_cast<int>(n * size);
        count = static_cast<int>(rows - first < size ? rows - first : size);
        return;
      }
      n -= spans;
    }
  }
};

/// y = x W or y += x W for rows (item, m).
template <class T> struct MaceProduct {
  int nrows;      // m, of each item
  int in, out;    // columns; out a multiple of MACE_CHANNELS, in of 4
  const T *x;     // of item at item*x_item + m*x_row, of its center where x_by_center
  std::int64_t x_item, x_row;
  const T *weight;    // [in, out], of each species at species*by_species
  std::int64_t by_species;
  T *y;    // likewise
  std::int64_t y_item, y_row;
  const T *bias;              // [species, out] or null
  std::int64_t first_item;    // of the launch
};

template <class T> struct MaceMix {
  static constexpr int lanes = 32;
  static constexpr int resident = 512;
  static constexpr const char *name = "MaceMix";
  static constexpr int ROWS = 16, COLUMNS = MACE_CHANNELS, SIDE = 4;    // SIDE x SIDE for a lane
  static constexpr int MOST = MACE_MOST_DEGREE + 1;
  const int *segment, *order;    // of MaceGpuChunk
  bool x_by_center, y_by_center, add;
  const double *scale;    // [items] factor of y, or null
  int nproducts;
  MaceProduct<T> product[MOST];

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    int p = 0;
    while (p + 1 < nproducts && item >= product[p + 1].first_item) ++p;
    const MaceProduct<T> &one = product[p];
    const std::int64_t n = item - one.first_item;
    const int ntiles = one.out / COLUMNS;
    const MaceSpan span(segment, one.nrows, ROWS, n / ntiles);
    const int column = static_cast<int>(n % ntiles) * COLUMNS;
    constexpr int across = COLUMNS / SIDE;
    for (int w = team.lane(); w < ROWS / SIDE * across; w += team.lanes())
      multiply(one, span, w / across * SIDE, column + w % across * SIDE);
  }

 private:
  PWMLFF_FORMULA void multiply(const MaceProduct<T> &one, const MaceSpan &span, int row0,
                               int column) const
  {
    if (row0 >= span.count) return;
    const T *x[SIDE];
    T *y[SIDE];
    T sum[SIDE][SIDE];
    int item[SIDE];
    PWMLFF_UNROLL_ALL
    for (int r = 0; r < SIDE; ++r) {
      // Rows beyond the last one repeat it, and are not written.
      const int row = span.first + (row0 + r < span.count ? row0 + r : span.count - 1);
      item[r] = segment[span.species] + row / one.nrows;
      const std::int64_t m = row % one.nrows;
      x[r] = global_pointer(one.x) + (x_by_center ? order[item[r]] : item[r]) * one.x_item +
             m * one.x_row;
      y[r] = one.y + (y_by_center ? order[item[r]] : item[r]) * one.y_item + m * one.y_row + column;
      for (int c = 0; c < SIDE; ++c) sum[r][c] = T(0);
    }
    const T *weight = global_pointer(one.weight) + span.species * one.by_species + column;
    for (int k = 0; k < one.in; k += SIDE) {
      T a[SIDE][SIDE], w[SIDE];
      PWMLFF_UNROLL_ALL
      for (int r = 0; r < SIDE; ++r) load_together<SIDE>(x[r] + k, a[r]);
      PWMLFF_UNROLL_ALL
      for (int i = 0; i < SIDE; ++i, weight += one.out) {
        load_together<SIDE>(weight, w);
        for (int r = 0; r < SIDE; ++r)
          for (int c = 0; c < SIDE; ++c) sum[r][c] += a[r][i] * w[c];
      }
    }
    PWMLFF_UNROLL_ALL
    for (int r = 0; r < SIDE; ++r) {
      if (row0 + r >= span.count) return;
      const T factor = scale ? static_cast<T>(scale[item[r]]) : T(1);
      T before[SIDE] = {T(0), T(0), T(0), T(0)};
      if (add) load_together<SIDE>(y[r], before);
      else if (one.bias)
        load_together<SIDE>(one.bias + static_cast<std::int64_t>(span.species) * one.out + column,
                            before);
      for (int c = 0; c < SIDE; ++c) sum[r][c] = before[c] + factor * sum[r][c];
      store_together<SIDE>(sum[r], y[r]);
    }
  }
};

}    // namespace pwmlff
