// SPDX-License-Identifier: GPL-2.0-or-later

// Uniform quintic B-splines at a point, for the CPU and GPUs.
//
// T is float or double; V is T or a vector of T (core/cpu/simd.h).

#pragma once

#include "../core/host_device.h"

namespace pwmlff {

/// B-splines of degree N-1 on an interval to those of degree N (de Boor 1972,
/// doi:10.1016/0021-9045(72)90080-9, with uniform knots). left is the place in the interval,
/// 0 to 1, and right = 1 - left; b [N+1] starts with N values.
template <int N, class T, class V> PWMLFF_FORMULA void raise_degree(V left, V right, V *b)
{
  constexpr T inv = T(1) / N;
  b[N] = left * b[N - 1] * inv;
  for (int k = N - 1; k > 0; --k)
    b[k] = ((left + T(N - k)) * b[k - 1] + (right + T(k)) * b[k]) * inv;
  b[0] = right * b[0] * inv;
}

/// Weights of the five differences of spline coefficients that give G and dG/dr: with B the splines
/// of degree 5 and b those of degree 4 that cover the interval,
///   G = coef_0 + sum over k of (B_k+1 + ... + B_5) (coef_k+1 - coef_k),
///   dG/dr = sum over k of b_k/spacing (coef_k+1 - coef_k).
/// Differences keep the derivative accurate in float32.
/// @param left place in the interval, 0 to 1
/// @param value,slope [5] the weights
template <class T, class V>
PWMLFF_FORMULA void spline_weights(V left, V per_spacing, V *value, V *slope)
{
  const V right = T(1) - left;
  V b[6] = {right, left};
  raise_degree<2, T>(left, right, b);
  raise_degree<3, T>(left, right, b);
  raise_degree<4, T>(left, right, b);
  for (int k = 0; k < 5; ++k) slope[k] = b[k] * per_spacing;
  raise_degree<5, T>(left, right, b);
  value[4] = b[5];
  for (int k = 3; k >= 0; --k) value[k] = value[k + 1] + b[k + 1];
}

/// The sums of spline_weights() for N columns at once.
/// @param coef    (k, n) -> coefficient k, 0 to 5, of column n
/// @param weight, slope_weight  of difference k at k*stride
/// @param value   [N] starts with coefficient 0
/// @param slope   [N] starts with zero
template <int N, class V, class T, class Coefficient>
PWMLFF_FORMULA void add_spline(const Coefficient &coef, const T *weight, const T *slope_weight,
                               int stride, V *value, V *slope)
{
  V left[N];
  for (int n = 0; n < N; ++n) left[n] = coef(0, n);
  for (int k = 0; k < 5; ++k) {
    const T w = weight[k * stride], s = slope_weight[k * stride];
    for (int n = 0; n < N; ++n) {
      const V right = coef(k + 1, n);
      const V difference = right - left[n];
      left[n] = right;
      value[n] += w * difference;
      slope[n] += s * difference;
    }
  }
}

}    // namespace pwmlff
