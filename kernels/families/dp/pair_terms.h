// SPDX-License-Identifier: GPL-2.0-or-later

// The formulas of an edge for the CPU, GPUs and training; symbols and signs in network.h.
//
// T is float or double; V is T or a vector of T (core/cpu/simd.h).

#pragma once

#include "../../core/host_device.h"

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

/// dE/dr_ij of an edge from derivatives by its environment, R_0 = s(r) and R_c = q(r) r_ij,c.
/// @param radial dE/dr at fixed R_1, R_2, R_3
/// @param a [3] dE/dR_1, dE/dR_2, dE/dR_3
template <class V>
PWMLFF_FORMULA void edge_gradient(V radial, const V *a, const V *d, V inv_r, V q, V qp, V *gradient)
{
  const V factor = radial * inv_r + (a[0] * d[0] + a[1] * d[1] + a[2] * d[2]) * qp;
  for (int c = 0; c < 3; ++c) gradient[c] = q * a[c] + factor * d[c];
}

}    // namespace pwmlff
