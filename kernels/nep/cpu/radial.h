// SPDX-License-Identifier: GPL-2.0-or-later

// Radial functions of a vector of distances: the cutoff function, and series of Chebyshev
// polynomials T_k(x) of x = 2 (r/rc - 1)^2 - 1.

#pragma once

#include "../../cpu/simd.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// Taylor coefficients of sin(pi s)/s and cos(pi s) by s^2, enough for |s| <= 1/2.
template <class T> struct HalfCosineSeries {
  static constexpr int terms = sizeof(T) == 8 ? 11 : 7;
  T sine[terms]{}, cosine[terms]{};

  constexpr HalfCosineSeries()
  {
    constexpr double pi = 3.14159265358979323846;
    double term = 1.0;    // pi^n / n!
    for (int n = 0; n < 2 * terms; ++n) {
      const double sign = n / 2 % 2 ? -1.0 : 1.0;
      (n % 2 ? sine : cosine)[n / 2] = static_cast<T>(sign * term);
      term *= pi / (n + 1);
    }
  }
};

/// fc = (1 + cos(pi r/rc))/2 and dfc/dr, both 0 from rc on; x and dx/dr.
template <class T> struct CutoffTerms {
  Vec<T> fc, dfc, x, dx;

  CutoffTerms(Vec<T> r, T inverse_cutoff)
  {
    static constexpr HalfCosineSeries<T> series;
    const Vec<T> t = r * inverse_cutoff, s = t - T(0.5), square = s * s;
    Vec<T> sine = broadcast<T>(series.sine[series.terms - 1]);
    Vec<T> cosine = broadcast<T>(series.cosine[series.terms - 1]);
#pragma GCC unroll 16
    for (int k = series.terms - 2; k >= 0; --k) {
      sine = sine * square + series.sine[k];
      cosine = cosine * square + series.cosine[k];
    }
    const auto inside = t < T(1);
    fc = inside ? T(0.5) - T(0.5) * s * sine : Vec<T>{};
    dfc = inside ? T(-0.5 * 3.14159265358979323846) * inverse_cutoff * cosine : Vec<T>{};
    const Vec<T> u = t - T(1);
    x = T(2) * u * u - T(1);
    dx = T(4) * inverse_cutoff * u;
  }
};

/// T_0, T_1, .. at `C` vectors of x, one after another.
template <class T, int C> struct Chebyshev {
  Vec<T> value[C], next[C], twice[C];

  explicit Chebyshev(const Vec<T> *x)
  {
    for (int c = 0; c < C; ++c) {
      value[c] = broadcast<T>(1);
      next[c] = x[c];
      twice[c] = x[c] + x[c];
    }
  }
  void advance()
  {
    for (int c = 0; c < C; ++c) {
      const Vec<T> after = twice[c] * next[c] - value[c];
      value[c] = next[c];
      next[c] = after;
    }
  }
};

}    // namespace pwmlff::PWMLFF_ISA::nep
