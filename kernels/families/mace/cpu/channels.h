// SPDX-License-Identifier: GPL-2.0-or-later

// Products that mix the channels of features: rows of a few atoms times one matrix.

#pragma once

#include "../../../core/cpu/simd.h"

namespace pwmlff::PWMLFF_ISA::mace {

/// A matrix [rows, stride] with columns padded by zeros to whole vectors.
template <class T> class ChannelMatrix {
 public:
  /// @param weight element (i, o) is at weight[i*stride_in + o*stride_out]
  ChannelMatrix(const double *weight, int in, int out, std::ptrdiff_t stride_in,
                std::ptrdiff_t stride_out) :
      in(in), stride(round_up(out, lanes<T>)), data(static_cast<std::size_t>(in) * stride)
  {
    data.fill(0);
    for (int i = 0; i < in; ++i)
      for (int o = 0; o < out; ++o)
        data[static_cast<std::size_t>(i) * stride + o] =
            static_cast<T>(weight[i * stride_in + o * stride_out]);
  }

  /// y[r] += factor[r] x[r] times rows first .. first+n-1.
  /// @param x,y  [nrows] pointers to n and to `stride` numbers
  void add(int nrows, const T *const *x, T *const *y, int first, int n) const
  {
    const T *const w = data.get() + static_cast<std::size_t>(first) * stride;
    constexpr int wide = PWMLFF_REGISTERS >= 32 ? 4 : 2;
    int c = 0;
    const int nvectors = stride / lanes<T>;
    for (; c + wide <= nvectors; c += wide) columns<wide>(nrows, x, y, w + c * lanes<T>, n, c);
    for (; c < nvectors; ++c) columns<1>(nrows, x, y, w + c * lanes<T>, n, c);
  }
  void add(int nrows, const T *const *x, T *const *y) const { add(nrows, x, y, 0, in); }

 private:
  template <int C>
  void columns(int nrows, const T *const *x, T *const *y, const T *w, int n, int c) const
  {
    int r = 0;
    for (; r + 4 <= nrows; r += 4) tile<4, C>(x + r, y + r, w, n, c);
    for (; r < nrows; ++r) tile<1, C>(x + r, y + r, w, n, c);
  }

  template <int R, int C> void tile(const T *const *x, T *const *y, const T *w, int n, int c) const
  {
    Vec<T> sum[R][C];
    for (int r = 0; r < R; ++r)
      for (int k = 0; k < C; ++k) sum[r][k] = load(y[r] + (c + k) * lanes<T>);
    for (int i = 0; i < n; ++i, w += stride) {
      Vec<T> row[C];
      for (int k = 0; k < C; ++k) row[k] = load(w + k * lanes<T>);
      for (int r = 0; r < R; ++r) {
        const Vec<T> a = broadcast<T>(x[r][i]);
        for (int k = 0; k < C; ++k) sum[r][k] += a * row[k];
      }
    }
    for (int r = 0; r < R; ++r)
      for (int k = 0; k < C; ++k) store(y[r] + (c + k) * lanes<T>, sum[r][k]);
  }

  int in, stride;
  Buffer<T> data;
};

}    // namespace pwmlff::PWMLFF_ISA::mace
