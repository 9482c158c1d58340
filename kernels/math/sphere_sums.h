// SPDX-License-Identifier: GPL-2.0-or-later

// Real spherical harmonics of one direction and sums over them, for a degree that is known at run
// time, as a lane of a team evaluates them. Formulas and order are those of sphere.h.

#pragma once

#include "../core/team.h"
#include "sphere_constants.h"

#include <vector>

namespace pwmlff {

/// Numbers of the harmonics, [9 m, 9 l, 2]: a and b of sphere.h, first Q_mm at l = m.
inline std::vector<double> sphere_table()
{
  constexpr int degrees = 9;
  const auto &numbers = sphere_constants<degrees - 1>;
  std::vector<double> table;
  for (int m = 0; m < degrees; ++m)
    for (int l = 0; l < degrees; ++l) {
      table.push_back(l == m ? numbers.first[m] : numbers.a[l][m]);
      table.push_back(numbers.b[l][m]);
    }
  return table;
}

/// Real harmonics by their places, with the formulas and the order of sphere.h.
/// @param sphere  sphere_table()
/// @param u       [3] of length 1
/// @param write   (place, value)
template <class T, class Write>
PWMLFF_FORMULA void harmonics_by_place(const T *sphere, int degree, const T *u, const Write &write)
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
PWMLFF_FORMULA T sum_harmonics(const T *sphere, int degree, const T *u, const Factors &factors,
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
