// SPDX-License-Identifier: GPL-2.0-or-later

// Formulas of one edge, as a lane evaluates them.

#pragma once

#include "../../../math/half_cosine.h"
#include "../../../math/sphere_sums.h"
#include "../../../math/zbl.h"
#include "types.h"

#include "../../../core/team.h"

#include <cmath>

namespace pwmlff {

constexpr double NEP_PI = 3.14159265358979323846;

/// fc = (1 + cos(pi r/rc))/2 and dfc/dr, 0 from rc on; x = 2 (r/rc - 1)^2 - 1 and dx/dr.
template <class T> struct NepCutoff {
  T fc, dfc, x, dx;

  PWMLFF_FORMULA NepCutoff(T r, T per_cutoff)
  {
    const T t = r * per_cutoff, u = t - T(1);
    T sine, cosine;
    half_cosine<T>(t - T(0.5), sine, cosine);
    fc = t < T(1) ? T(0.5) - T(0.5) * sine : T(0);
    dfc = t < T(1) ? T(-0.5 * NEP_PI) * per_cutoff * cosine : T(0);
    x = T(2) * u * u - T(1);
    dx = T(4) * per_cutoff * u;
  }
};

/// A group of functions g_n of an edge and their derivatives by r.
template <class T> struct NepFunctions {
  T value[NEP_GROUP], slope[NEP_GROUP];

  PWMLFF_FORMULA NepFunctions(const NepGpuSeries<T> &series, int group, int nbasis,
                              const NepCutoff<T> &cutoff)
  {
    for (int n = 0; n < NEP_GROUP; ++n) value[n] = slope[n] = T(0);
    const T *c = global_pointer(series.c) + group * nbasis * NEP_GROUP;
    T chebyshev = T(1), next = cutoff.x;            // T_k, T_k+1
    T derivative = T(0), next_derivative = T(1);    // by x
    for (int k = 0; k < nbasis; ++k, c += NEP_GROUP) {
      T factor[NEP_GROUP];
      load_together<NEP_GROUP>(c, factor);
      for (int n = 0; n < NEP_GROUP; ++n) {
        value[n] += factor[n] * chebyshev;
        slope[n] += factor[n] * derivative;
      }
      const T after = T(2) * cutoff.x * next - chebyshev;
      const T after_derivative = T(2) * (next + cutoff.x * next_derivative) - derivative;
      chebyshev = next;
      next = after;
      derivative = next_derivative;
      next_derivative = after_derivative;
    }
    for (int n = 0; n < NEP_GROUP; ++n) {
      slope[n] = cutoff.dfc * value[n] + cutoff.fc * cutoff.dx * slope[n];
      value[n] *= cutoff.fc;
    }
  }
};

}    // namespace pwmlff
