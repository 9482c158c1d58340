// SPDX-License-Identifier: GPL-2.0-or-later

// The formulas of an edge for the CPU, GPUs and training; symbols and signs in network.h.
//
// T is float or double; V is T or a vector of T (cpu/simd.h).

#pragma once

#include "../common/host_device.h"

#include <cstdint>

namespace pwmlff {

/// u = (r - rmin)/(rmax - rmin), and 0 below rmin.
template <class T, class V> PWMLFF_FORMULA V switch_place(V r, T rmin, T inv_width)
{
  const V u = (r - rmin) * inv_width;
  return u > T(0) ? u : V{};
}

/// What an edge weighs in gamma (RowSums), by the square of r/rmax: 0 at rmax.
template <class V> PWMLFF_FORMULA V near_weight(V square)
{
  const V first = 1.0 - square, second = first * first, fourth = second * second;
  return fourth * fourth;
}

/// s(r) and its derivatives by r.
template <class T, class V> struct SwitchedInverse {
  V s, s1;

  /// @param u 0 at and below rmin, 1 at and beyond rmax
  PWMLFF_FORMULA SwitchedInverse(V u, V inv_r, T inv_width)
  {
    const V v = T(1) - u;
    s = (u * u * u * (u * (T(15) - T(6) * u) - T(10)) + T(1)) * inv_r;
    s1 = (u * u * v * v * (T(-30) * inv_width) - s) * inv_r;
  }

  /// The second derivative.
  PWMLFF_FORMULA V s2(V u, V inv_r, T inv_width) const
  {
    const V v = T(1) - u;
    return (u * v * (v - u) * (T(-60) * inv_width * inv_width) - T(2) * s1) * inv_r;
  }
};

/// r and what follows from it.
template <class T, class V> struct RadialTerms {
  V inv_r;
  V s, s1;    // s and ds/dr
  V q;        // s/r
  V qp;       // (dq/dr)/r

  PWMLFF_FORMULA RadialTerms(V r, V u, T inv_width)
  {
    inv_r = T(1) / r;
    const SwitchedInverse inverse(u, inv_r, inv_width);
    s = inverse.s;
    s1 = inverse.s1;
    q = s * inv_r;
    qp = (s1 - q) * inv_r * inv_r;
  }
};

/// Whether an embedding layer adds its input: x where the width stays, (x, x) where it doubles, as
/// in DeePMD-kit (Wang et al. 2018, doi:10.1016/j.cpc.2018.03.016), after He et al. 2015,
/// arXiv:1512.03385.
PWMLFF_FORMULA constexpr bool embedding_residual(int in, int out)
{
  return out == in || out == 2 * in;
}

/// The elements of the descriptor that enter a fitting net are (m, k) with k < m2 and k <= m, by k,
/// then m: it is symmetric in its first m2 rows (fold_weights). Where one of them is.
PWMLFF_FORMULA constexpr int descriptor_place(int width, int m, int k)
{
  return k * width - k * (k - 1) / 2 + m - k;
}

/// How many there are.
PWMLFF_FORMULA constexpr int descriptor_size(int width, int m2)
{
  return descriptor_place(width, m2, m2);
}

/// Output of a hidden layer, of embedding and fitting nets alike: x + step t with a residual, else
/// t; there the step is 1.
/// @param t  tanh(z)
template <class T, class V> PWMLFF_FORMULA V hidden_output(bool residual, T step, V x, V t)
{
  return residual ? step * t + x : t;
}

/// Its derivative in any direction, from those of x and z.
template <class T, class V> PWMLFF_FORMULA V hidden_tangent(bool residual, T step, V t, V dx, V dz)
{
  const V dt = step * (T(1) - t * t) * dz;
  return residual ? dt + dx : dt;
}

/// dE/dz of a hidden layer from dE/dy.
template <class T, class V> PWMLFF_FORMULA V hidden_gradient(T step, V t, V dy)
{
  return step * dy * (T(1) - t * t);
}

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

/// dE/dr_ij of an edge from derivatives by its environment, R_0 = s(r) and R_c = q(r) r_ij,c.
/// @param radial dE/dr at fixed R_1, R_2, R_3
/// @param a [3] dE/dR_1, dE/dR_2, dE/dR_3
template <class V>
PWMLFF_FORMULA void edge_gradient(V radial, const V *a, const V *d, V inv_r, V q, V qp, V *gradient)
{
  const V factor = radial * inv_r + (a[0] * d[0] + a[1] * d[1] + a[2] * d[2]) * qp;
  for (int c = 0; c < 3; ++c) gradient[c] = q * a[c] + factor * d[c];
}

/// Where component k of xx yy zz xy xz yz yx zx zy is in a 3x3 matrix, row by row.
PWMLFF_FORMULA constexpr int virial_component(int k)
{
  constexpr int place[9] = {0, 4, 8, 1, 2, 5, 3, 6, 7};
  return place[k];
}

/// Add r_ij (x) f_ij of an edge to the virials of atoms: to both ends alike, or to the neighbor.
/// @param team  adds (common/team.h)
/// @param d, f  [3] r_ij and the force on the neighbor
/// @param atom_virial     [., 6] or null
/// @param centroid_virial [., 9] or null
template <class Team>
PWMLFF_FORMULA void spread_virial(const Team &team, const double *d, const double *f,
                                  std::int64_t i, std::int64_t j, double *atom_virial,
                                  double *centroid_virial)
{
  double term[9];
  for (int k = 0; k < 9; ++k) term[k] = d[virial_component(k) / 3] * f[virial_component(k) % 3];
  if (atom_virial)
    for (int k = 0; k < 6; ++k) {
      team.add(atom_virial + 6 * i + k, 0.5 * term[k]);
      team.add(atom_virial + 6 * j + k, 0.5 * term[k]);
    }
  if (centroid_virial)
    for (int k = 0; k < 9; ++k) team.add(centroid_virial + 9 * j + k, term[k]);
}

}    // namespace pwmlff
