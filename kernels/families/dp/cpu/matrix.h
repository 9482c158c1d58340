// SPDX-License-Identifier: GPL-2.0-or-later

// Products of a constant matrix with a few vectors of columns: the layers of networks, with one
// atom (or one neighbor) per lane.

#pragma once

#include "../../../core/cpu/simd.h"

namespace pwmlff::PWMLFF_ISA {

/// y[o] = bias[o] + sum over i of x[i] weight[i][o], for `C` vectors of columns at once.
///
/// The matrix is cut into tiles of a few rows o whose results stay in registers; within a tile it
/// is stored in the order of use. Of a tile, inputs before the first and after the last one that
/// has a weight are left out, which of a triangular matrix is nearly half.
template <class T, int C> class TiledMatrix {
 public:
  static constexpr int columns = C * lanes<T>;
  static constexpr int rows_max =
      (PWMLFF_REGISTERS - C - 1) / C < 12 ? (PWMLFF_REGISTERS - C - 1) / C : 12;

  /// @param weight element (i, o) is at weight[i*stride_in + o*stride_out]
  TiledMatrix(const double *weight, int in, int out, std::ptrdiff_t stride_in,
              std::ptrdiff_t stride_out) :
      in(in),
      out(out),
      tiles((out + rows_max - 1) / rows_max),
      begin(tiles),
      end(tiles),
      data(static_cast<std::size_t>(in) * out)
  {
    T *p = data.get();
    for (int tile = 0, o = 0; tile < tiles; o += rows(tile), ++tile) {
      const auto is_empty = [&](int i) {
        for (int k = 0; k < rows(tile); ++k)
          if (weight[i * stride_in + (o + k) * stride_out] != 0.0) return false;
        return true;
      };
      begin[tile] = 0;
      end[tile] = in;
      while (begin[tile] < end[tile] && is_empty(begin[tile])) ++begin[tile];
      while (begin[tile] < end[tile] && is_empty(end[tile] - 1)) --end[tile];
      for (int i = begin[tile]; i < end[tile]; ++i)
        for (int k = 0; k < rows(tile); ++k)
          *p++ = static_cast<T>(weight[i * stride_in + (o + k) * stride_out]);
    }
  }

  /// @param x [in, columns]
  /// @param bias [out], or null for zero
  /// @param y [out, columns]
  void apply(const T *x, const T *bias, T *y) const { run(x, bias, nullptr, y); }

  /// The same with a term [out, columns] in place of the bias; it may be y itself.
  void apply_add(const T *x, const T *term, T *y) const { run(x, nullptr, term, y); }

  const int in, out;

 private:
  // Tiles differ by at most one row.
  int rows(int tile) const { return out / tiles + (tile < out % tiles ? 1 : 0); }

  void run(const T *x, const T *bias, const T *term, T *y) const
  {
    const T *w = data.get();
    for (int tile = 0, o = 0; tile < tiles; ++tile) {
      const int n = rows(tile);
      const std::size_t offset = static_cast<std::size_t>(o) * columns;
      const int count = end[tile] - begin[tile];
      choose<rows_max>(n, count, w, x + static_cast<std::ptrdiff_t>(begin[tile]) * columns,
                       bias ? bias + o : nullptr, term ? term + offset : nullptr, y + offset);
      w += static_cast<std::ptrdiff_t>(n) * count;
      o += n;
    }
  }

  template <int R>
  void choose(int n, int count, const T *w, const T *x, const T *bias, const T *term, T *y) const
  {
    if constexpr (R > 1)
      if (n < R) return choose<R - 1>(n, count, w, x, bias, term, y);
    compute<R>(count, w, x, bias, term, y);
  }

  template <int R>
  __attribute__((noinline)) void compute(int count, const T *w, const T *x, const T *bias,
                                         const T *term, T *y) const
  {
    Vec<T> sum[R][C];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) {
        sum[r][c] = bias ? broadcast<T>(bias[r]) : Vec<T>{};
        if (term) sum[r][c] = load(term + r * columns + c * lanes<T>);
      }
    for (int i = 0; i < count; ++i) {
      Vec<T> column[C];
      for (int c = 0; c < C; ++c) column[c] = load(x + c * lanes<T>);
      for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) sum[r][c] += w[r] * column[c];
      w += R;
      x += columns;
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) store(y + r * columns + c * lanes<T>, sum[r][c]);
  }

  int tiles;
  Buffer<int> begin, end;    // [tiles] of the inputs
  Buffer<T> data;
};

}    // namespace pwmlff::PWMLFF_ISA
