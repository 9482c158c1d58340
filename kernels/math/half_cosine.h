// SPDX-License-Identifier: GPL-2.0-or-later

// Sines and cosines of a reduced angle, for the CPU and GPUs. T is float or double; V is T or a
// vector of T (core/cpu/simd.h).

#pragma once

#include "../core/host_device.h"

namespace pwmlff {

/// Taylor coefficients of sin(pi s)/s and cos(pi s) by s^2.
template <class T> struct HalfCosineSeries {
  static constexpr int terms = sizeof(T) == 8 ? 11 : 7;
  T sine[terms]{}, cosine[terms]{};

  PWMLFF_HOST_DEVICE constexpr HalfCosineSeries()
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

/// sin(pi s) and cos(pi s) for |s| <= 1/2, which is all that cutoff functions need.
template <class T, class V> PWMLFF_FORMULA void half_cosine(V s, V &sine, V &cosine)
{
  constexpr HalfCosineSeries<T> series;
  const V square = s * s;
  sine = V{} + series.sine[series.terms - 1];
  cosine = V{} + series.cosine[series.terms - 1];
  PWMLFF_UNROLL_ALL
  for (int k = series.terms - 2; k >= 0; --k) {
    sine = sine * square + series.sine[k];
    cosine = cosine * square + series.cosine[k];
  }
  sine *= s;
}

/// sin(2 pi s) and cos(2 pi s) for |s| <= 1/2.
template <class T, class V> PWMLFF_FORMULA void whole_cosine(V s, V &sine, V &cosine)
{
  V half_sine, half;
  half_cosine<T>(s, half_sine, half);
  sine = T(2) * half_sine * half;
  cosine = T(1) - T(2) * half_sine * half_sine;
}

}    // namespace pwmlff
