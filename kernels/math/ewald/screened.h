// SPDX-License-Identifier: GPL-2.0-or-later

// erfc(alpha r)/r and its derivative: 1/r less erf(alpha r)/r, which is an entire function of r^2,
// by its Chebyshev series. Within 1e-15 of 1/r up to the largest distance.

#pragma once

#include "../../core/cpu/simd.h"

#include <numbers>

namespace pwmlff::PWMLFF_ISA {

class Screened {
 public:
  static constexpr int terms = 32;

  /// @param alpha    1/angstrom
  /// @param largest  distance up to which it is asked for, angstrom
  Screened(double alpha, double largest) : scale(2.0 / (largest * largest))
  {
    // Interpolation in the zeros of T_terms, and the same of the derivative by the series.
    constexpr double pi = std::numbers::pi;
    double values[terms];
    for (int k = 0; k < terms; ++k) {
      const double s = __builtin_cos(pi * (k + 0.5) / terms);
      const double r = largest * __builtin_sqrt(0.5 * (s + 1.0));
      values[k] = __builtin_erf(alpha * r) / r;
    }
    for (int n = 0; n < terms; ++n) {
      double sum = 0.0;
      for (int k = 0; k < terms; ++k) sum += values[k] * __builtin_cos(pi * n * (k + 0.5) / terms);
      value[n] = (n == 0 ? 1.0 : 2.0) / terms * sum;
    }
    double after = 0.0, next = 0.0;    // of the derivative by s
    for (int n = terms - 1; n >= 0; --n) {
      slope[n] = next;
      const double before = after + 2.0 * n * value[n];
      after = next;
      next = before;
    }
    slope[0] *= 0.5;
  }

  /// Of vectors of squares, above 0.
  /// @param f  erfc(alpha r)/r
  /// @param g  its derivative by r, divided by r
  void evaluate(Vec<double> square, Vec<double> &f, Vec<double> &g) const
  {
    const Vec<double> s = square * scale - 1.0, twice = s + s;
    Vec<double> a[2] = {}, b[2] = {};    // Clenshaw: of the next term, and the one after
    for (int n = terms - 1; n > 0; --n) {
      const Vec<double> c = twice * a[0] - b[0] + value[n], d = twice * a[1] - b[1] + slope[n];
      b[0] = a[0], b[1] = a[1];
      a[0] = c, a[1] = d;
    }
    const Vec<double> inverse = 1.0 / sqrt(square);
    f = inverse - (s * a[0] - b[0] + value[0]);
    g = -inverse / square - 2.0 * scale * (s * a[1] - b[1] + slope[0]);
  }

 private:
  const double scale;
  double value[terms], slope[terms];    // of the series, in s = scale r^2 - 1
};

}    // namespace pwmlff::PWMLFF_ISA
