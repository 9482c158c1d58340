// SPDX-License-Identifier: GPL-2.0-or-later

// What lies between the products of matrices of a fitting net, for the engine and for training:
// features in rows, atoms in columns, so that atoms are the lanes.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../pair_terms.h"

namespace pwmlff::PWMLFF_ISA {

/// h = tanh(z) and the output y of a hidden layer.
/// @param n      columns, a multiple of the lanes; also the distance of rows of h
/// @param stride distance of rows of x, z and y
/// @param step   [rows] or null: ones
/// @param z      may be h or y
template <class T>
inline void activate(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *x, const T *step,
                     bool residual, const T *z, T *h, T *y)
{
  for (int r = 0; r < rows; ++r, x += stride, z += stride, y += stride, h += n) {
    const T factor = step ? step[r] : T(1);
    for (std::ptrdiff_t k = 0; k < n; k += lanes<T>) {
      const Vec<T> value = tanh<T>(load(z + k));
      store(h + k, value);
      store(y + k, hidden_output(residual, factor, residual ? load(x + k) : Vec<T>{}, value));
    }
  }
}

/// dE/dz from dE/dy of such a layer.
/// @param h, dy [rows, n]
/// @param dz    [rows, stride]
template <class T>
inline void activate_backward(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *step,
                              const T *h, const T *dy, T *dz)
{
  for (int r = 0; r < rows; ++r, h += n, dy += n, dz += stride) {
    const T factor = step ? step[r] : T(1);
    for (std::ptrdiff_t k = 0; k < n; k += lanes<T>) {
      store(dz + k, hidden_gradient(factor, load(h + k), load(dy + k)));
    }
  }
}

/// Moments T of atoms: those of component c and feature m are at data + c*component + m*row.
template <class Number> struct MomentRows {
  Number *data;
  std::ptrdiff_t row, component;

  Number *at(int c, int m) const { return data + c * component + m * row; }
};

/// D[p] = sum over c of T_cm T_ck for all p = descriptor_place(width, m, k), C vectors of atoms at
/// once.
/// @param d [ndescriptor, drow]
template <class T, int C>
inline void describe(int width, int m2, MomentRows<const T> t, std::ptrdiff_t drow, T *d)
{
  for (int k = 0; k < m2; ++k) {
    Vec<T> axis[4][C];
    for (int c = 0; c < 4; ++c)
      for (int v = 0; v < C; ++v) axis[c][v] = load(t.at(c, k) + v * lanes<T>);
    for (int m = k; m < width; ++m, d += drow)
      for (int v = 0; v < C; ++v)
        store(d + v * lanes<T>, axis[0][v] * load(t.at(0, m) + v * lanes<T>) +
                                    axis[1][v] * load(t.at(1, m) + v * lanes<T>) +
                                    axis[2][v] * load(t.at(2, m) + v * lanes<T>) +
                                    axis[3][v] * load(t.at(3, m) + v * lanes<T>));
  }
}

/// out_cm += d_p T_ck, out_ck += d_p T_cm for all pairs.
template <class T, int C>
inline void describe_backward(int width, int m2, MomentRows<const T> t, std::ptrdiff_t drow,
                              const T *d, MomentRows<T> out)
{
  for (int k = 0; k < m2; ++k) {
    Vec<T> axis[4][C], sum[4][C];
    for (int c = 0; c < 4; ++c)
      for (int v = 0; v < C; ++v) {
        axis[c][v] = load(t.at(c, k) + v * lanes<T>);
        sum[c][v] = load(d + v * lanes<T>) * axis[c][v];    // the diagonal counts twice
      }
    for (int m = k; m < width; ++m, d += drow)
      for (int v = 0; v < C; ++v) {
        const Vec<T> derivative = load(d + v * lanes<T>);
        for (int c = 0; c < 4; ++c) {
          T *const q = out.at(c, m) + v * lanes<T>;
          if (m > k) store(q, load(q) + derivative * axis[c][v]);
          sum[c][v] += derivative * load(t.at(c, m) + v * lanes<T>);
        }
      }
    for (int c = 0; c < 4; ++c)
      for (int v = 0; v < C; ++v) {
        T *const q = out.at(c, k) + v * lanes<T>;
        store(q, load(q) + sum[c][v]);
      }
  }
}

}    // namespace pwmlff::PWMLFF_ISA
