// SPDX-License-Identifier: GPL-2.0-or-later

// Formulas of one edge, as a lane evaluates them.

#pragma once

#include "../../../math/half_cosine.h"
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

/// Real harmonics by their places, with the formulas and the order of math/sphere.h.
/// @param sphere  of the model
/// @param u       [3] of length 1
/// @param write   (place, value)
template <class T, class Write>
PWMLFF_FORMULA void nep_harmonics(const T *sphere, int degree, const T *u, const Write &write)
{
  T re = T(1), im = T(0);    // (x + i y)^m
  for (int m = 0; m <= degree; ++m) {
    const T *const c = global_pointer(sphere) + 18 * m;
    T q = c[2 * m], before = T(0);
    for (int l = m; l <= degree; ++l) {
      if (l > m) {
        const T next = c[2 * l] * u[2] * q - c[2 * l + 1] * before;
        before = q;
        q = next;
      }
      const int place = l * l - 1;
      if (m > 0) {
        write(place + 2 * m - 1, q * re);
        write(place + 2 * m, q * im);
      } else if (l > 0) {
        write(place, q);
      }
    }
    const T next = re * u[0] - im * u[1];
    im = re * u[1] + im * u[0];
    re = next;
  }
}

/// Sums over places of harmonics R(u) and of their derivatives.
/// @param factors   (place, g, h), which writes a factor of R and one of its gradient
/// @param gradient  [3] to which the gradient by u of the sum of h R(u) is added, as if the
///                  components of u were free
/// @return the sum of g R(u)
template <class T, class Factors>
PWMLFF_FORMULA T nep_sums(const T *sphere, int degree, const T *u, const Factors &factors,
                          T *gradient)
{
  T re = T(1), im = T(0);    // (x + i y)^(m-1), but for m = 0
  T sum = T(0);
  for (int m = 0; m <= degree; ++m) {
    const T *const c = global_pointer(sphere) + 18 * m;
    T q = c[2 * m], before = T(0), dq = T(0), dbefore = T(0);    // Q and dQ/dz
    T a = T(0), b = T(0), da = T(0), db = T(0);    // sums over l of Q h and of dQ/dz h
    T qa = T(0), qb = T(0);                        // of Q g
    for (int l = m; l <= degree; ++l) {
      if (l > m) {
        const T next = c[2 * l] * u[2] * q - c[2 * l + 1] * before;
        const T dnext = c[2 * l] * (q + u[2] * dq) - c[2 * l + 1] * dbefore;
        before = q;
        dbefore = dq;
        q = next;
        dq = dnext;
      }
      const int place = l * l - 1;
      T g, h;
      if (m > 0) {
        factors(place + 2 * m - 1, g, h);
        qa += q * g;
        a += q * h;
        da += dq * h;
        factors(place + 2 * m, g, h);
        qb += q * g;
        b += q * h;
        db += dq * h;
      } else if (l > 0) {
        factors(place, g, h);
        qa += q * g;
        da += dq * h;
      }
    }
    if (m > 0) {
      gradient[0] += T(m) * (a * re + b * im);
      gradient[1] += T(m) * (b * re - a * im);
      const T next = re * u[0] - im * u[1];
      im = re * u[1] + im * u[0];
      re = next;
    }
    sum += qa * re + qb * im;
    gradient[2] += da * re + db * im;
  }
  return sum;
}

}    // namespace pwmlff
