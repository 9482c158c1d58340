// SPDX-License-Identifier: GPL-2.0-or-later

// Radial functions of a vector of distances: the cutoff function, and series of Chebyshev
// polynomials T_k(x) of x = 2 (r/rc - 1)^2 - 1.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../../../math/half_cosine.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// fc = (1 + cos(pi r/rc))/2 and dfc/dr, both 0 from rc on; x and dx/dr.
template <class T> struct CutoffTerms {
  Vec<T> fc, dfc, x, dx;

  CutoffTerms(Vec<T> r, T inverse_cutoff)
  {
    const Vec<T> t = r * inverse_cutoff;
    Vec<T> sine, cosine;
    half_cosine<T>(t - T(0.5), sine, cosine);
    const auto inside = t < T(1);
    fc = inside ? T(0.5) - T(0.5) * sine : Vec<T>{};
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
