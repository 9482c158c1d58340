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
    const T *c = global_pointer(series.c) + group * nbasis * 2 * NEP_GROUP;
    T chebyshev = T(1), next = cutoff.x;
    for (int k = 0; k < nbasis; ++k, c += 2 * NEP_GROUP) {
      T both[2 * NEP_GROUP];
      load_together<2 * NEP_GROUP>(c, both);
      for (int n = 0; n < NEP_GROUP; ++n) {
        value[n] += both[n] * chebyshev;
        slope[n] += both[NEP_GROUP + n] * chebyshev;
      }
      const T after = T(2) * cutoff.x * next - chebyshev;
      chebyshev = next;
      next = after;
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

/// The gradient by u of the sum over places of h R(u), as if the components of u were free.
/// @param h  (place) -> number
template <class T, class Read>
PWMLFF_FORMULA void nep_gradient(const T *sphere, int degree, const T *u, const Read &h,
                                 T *gradient)
{
  T re = T(1), im = T(0);    // (x + i y)^(m-1), but for m = 0
  for (int c = 0; c < 3; ++c) gradient[c] = T(0);
  for (int m = 0; m <= degree; ++m) {
    const T *const c = global_pointer(sphere) + 18 * m;
    T q = c[2 * m], before = T(0), dq = T(0), dbefore = T(0);    // Q and dQ/dz
    T a = T(0), b = T(0), da = T(0), db = T(0);    // sums over l of Q h and of dQ/dz h
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
      if (m > 0) {
        const T h_re = h(place + 2 * m - 1), h_im = h(place + 2 * m);
        a += q * h_re;
        da += dq * h_re;
        b += q * h_im;
        db += dq * h_im;
      } else if (l > 0) {
        da += dq * h(place);
      }
    }
    if (m > 0) {
      gradient[0] += T(m) * (a * re + b * im);
      gradient[1] += T(m) * (b * re - a * im);
      const T next = re * u[0] - im * u[1];
      im = re * u[1] + im * u[0];
      re = next;
    }
    gradient[2] += da * re + db * im;
  }
}

}    // namespace pwmlff
