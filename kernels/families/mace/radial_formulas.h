// SPDX-License-Identifier: GPL-2.0-or-later

// The functions of one distance that a MACE model is made of (formulas in network.h), for all
// engines on the CPU and on GPUs.

#pragma once

#include "../../core/host_device.h"
#include "../../math/half_cosine.h"

#include <math.h>

namespace pwmlff {

/// The polynomial cutoff f with power p, an integer, at u = r/cutoff, also beyond where it ends.
/// @param df  df/du
PWMLFF_FORMULA double polynomial_cutoff(double p, double u, double &df)
{
  double un = 1.0;    // u^(p-1)
  for (int k = 1; k < p; ++k) un *= u;
  const double c0 = (p + 1.0) * (p + 2.0) / 2.0, c1 = p * (p + 2.0), c2 = p * (p + 1.0) / 2.0;
  df = -un * (p * c0 - u * ((p + 1.0) * c1 - u * (p + 2.0) * c2));
  return 1.0 - un * u * (c0 - u * (c1 - u * c2));
}

/// The Agnesi transform of r and its derivative.
/// @param numbers  [3] q, p, a
/// @param radius   half of the sum of the covalent radii
PWMLFF_FORMULA double agnesi_transform(const double *numbers, double r, double radius,
                                       double &derivative)
{
  const double q = numbers[0], p = numbers[1], a = numbers[2], u = r / radius;
  const double logarithm = log(u);
  const double top = a * exp(q * logarithm), bottom = 1.0 + exp((q - p) * logarithm);
  const double fraction = top / bottom;
  const double t = 1.0 / (1.0 + fraction);
  const double slope = fraction * (q - (q - p) * (bottom - 1.0) / bottom) / (u * radius);
  derivative = -t * t * slope;
  return t;
}

/// A radial function b_n of t, and its derivative by t.
/// @param factor, w  as in network.h
PWMLFF_FORMULA double radial_function(bool is_bessel, double factor, double w, double t,
                                      double &derivative)
{
  if (is_bessel) {
    const double half_turns = w * t / 3.14159265358979323846, whole = floor(half_turns + 0.5);
    double sine, cosine;
    half_cosine<double>(half_turns - whole, sine, cosine);
    const double sign = whole == 2.0 * floor(0.5 * whole) ? factor : -factor;
    const double b = sign * sine / t;
    derivative = (sign * w * cosine - b) / t;
    return b;
  }
  const double b = exp(factor * (t - w) * (t - w));
  derivative = 2.0 * factor * (t - w) * b;
  return b;
}

/// silu(y) = y/(1 + exp(-y)) and its derivative.
PWMLFF_FORMULA double silu(double y, double &derivative)
{
  const double s = 1.0 / (1.0 + exp(-y));
  derivative = s * (1.0 + y * (1.0 - s));
  return y * s;
}

/// The energy of two nuclei at a distance below their reach, and its derivative.
/// @param numbers  [5] p and c
PWMLFF_FORMULA double mace_zbl(const double *numbers, double strength, double length, double reach,
                               double r, double &derivative)
{
  constexpr double decay[4] = {3.2, 0.9423, 0.4028, 0.2016};
  double phi = 0.0, dphi = 0.0;
  for (int k = 0; k < 4; ++k) {
    const double term = numbers[1 + k] * exp(-decay[k] * r / length);
    phi += term;
    dphi -= decay[k] / length * term;
  }
  const double v = strength / r * phi, dv = strength / r * (dphi - phi / r);
  double df = 0.0;
  const double f = polynomial_cutoff(numbers[0], r / reach, df);
  df /= reach;
  derivative = dv * f + v * df;
  return v * f;
}

}    // namespace pwmlff
