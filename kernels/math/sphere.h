// SPDX-License-Identifier: GPL-2.0-or-later

// Real spherical harmonics of a vector of directions u = (x, y, z), and the gradient of a linear
// combination of them, for degrees up to L, which is known at compile time.
//
//   R_l,0    = Y_l0
//   R_l,2m-1 = sqrt(2) Re Y_lm,   R_l,2m = sqrt(2) Im Y_lm        m = 1 .. l
//
// with Y_lm of harmonics.h, so that the sum over m of |A_lm|^2 is the sum of squares of the real
// components. R_l starts at l^2 - 1; there is no R_0. They are written as
//
//   R = Q_lm(z) Re or Im (x + i y)^m,   Q_lm = s_lm d^m P_l/dz^m
//   Q_lm = a z Q_l-1,m - b Q_l-2,m      (recursion of the associated Legendre functions)
//   dQ_lm/dz = (s_lm/s_l,m+1) Q_l,m+1

#pragma once

#include "../core/cpu/simd.h"
#include "sphere_constants.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// The number of R_lm up to degree L.
constexpr int harmonics_up_to(int largest) { return largest * (largest + 2); }

namespace sphere {

/// All Q_lm.
template <class T, int L> struct Columns {
  Vec<T> q[L + 1][L + 1];    // [l][m]

  explicit Columns(Vec<T> z)
  {
    constexpr const SphereConstants<L> &c = sphere_constants<L>;
#pragma GCC unroll 16
    for (int m = 0; m <= L; ++m) {
      q[m][m] = broadcast<T>(static_cast<T>(c.first[m]));
#pragma GCC unroll 16
      for (int l = m + 1; l <= L; ++l) {
        q[l][m] = static_cast<T>(c.a[l][m]) * z * q[l - 1][m];
        if (l - 2 >= m) q[l][m] -= static_cast<T>(c.b[l][m]) * q[l - 2][m];
      }
    }
  }
};

}    // namespace sphere

/// @param out [harmonics_up_to(L)] vectors
template <class T, int L> inline void harmonics(Vec<T> x, Vec<T> y, Vec<T> z, T *out)
{
  const sphere::Columns<T, L> columns(z);
  Vec<T> re = broadcast<T>(1), im{};    // (x + i y)^m
#pragma GCC unroll 16
  for (int m = 0; m <= L; ++m) {
#pragma GCC unroll 16
    for (int l = m > 1 ? m : 1; l <= L; ++l) {
      T *const p = out + (l * l - 1) * lanes<T>;
      if (m == 0) {
        store(p, columns.q[l][0]);
      } else {
        store(p + (2 * m - 1) * lanes<T>, columns.q[l][m] * re);
        store(p + 2 * m * lanes<T>, columns.q[l][m] * im);
      }
    }
    const Vec<T> next = re * x - im * y;
    im = re * y + im * x;
    re = next;
  }
}

/// The same, and derivatives as u moves at the rate p.
/// @param rates [harmonics_up_to(L)] vectors
template <class T, int L>
inline void harmonics_along(const Vec<T> *u, const Vec<T> *p, T *out, T *rates)
{
  constexpr const SphereConstants<L> &c = sphere_constants<L>;
  const sphere::Columns<T, L> columns(u[2]);
  Vec<T> re = broadcast<T>(1), im{}, dre{}, dim{};    // (x + i y)^m and its derivative
#pragma GCC unroll 16
  for (int m = 0; m <= L; ++m) {
#pragma GCC unroll 16
    for (int l = m > 1 ? m : 1; l <= L; ++l) {
      const int at = (l * l - 1) * lanes<T>;
      const Vec<T> q = columns.q[l][m];
      const Vec<T> dq =
          l > m ? static_cast<T>(c.derivative[l][m]) * p[2] * columns.q[l][m + 1 <= L ? m + 1 : 0]
                : Vec<T>{};
      if (m == 0) {
        store(out + at, q);
        store(rates + at, dq);
      } else {
        const int of_re = at + (2 * m - 1) * lanes<T>, of_im = at + 2 * m * lanes<T>;
        store(out + of_re, q * re);
        store(out + of_im, q * im);
        store(rates + of_re, q * dre + dq * re);
        store(rates + of_im, q * dim + dq * im);
      }
    }
    const Vec<T> next_dre = dre * u[0] - dim * u[1] + re * p[0] - im * p[1];
    dim = dre * u[1] + dim * u[0] + re * p[1] + im * p[0];
    dre = next_dre;
    const Vec<T> next = re * u[0] - im * u[1];
    im = re * u[1] + im * u[0];
    re = next;
  }
}

/// The gradient by u of the sum over l, m of h_lm R_lm(u), as if the components of u were free.
/// @param h [harmonics_up_to(L)] vectors
template <class T, int L>
inline void harmonics_gradient(Vec<T> x, Vec<T> y, Vec<T> z, const T *h, Vec<T> *gradient)
{
  constexpr const SphereConstants<L> &c = sphere_constants<L>;
  const sphere::Columns<T, L> columns(z);
  Vec<T> re = broadcast<T>(1), im{}, gx{}, gy{}, gz{};
#pragma GCC unroll 16
  for (int m = 0; m <= L; ++m) {
    Vec<T> a{}, b{}, da{}, db{};    // sums over l of Q h and of dQ/dz h, for Re and Im
#pragma GCC unroll 16
    for (int l = m > 1 ? m : 1; l <= L; ++l) {
      const T *const p = h + (l * l - 1) * lanes<T>;
      const Vec<T> h_re = load(p + (m ? 2 * m - 1 : 0) * lanes<T>);
      const Vec<T> slope =
          l > m ? static_cast<T>(c.derivative[l][m]) * columns.q[l][m + 1 <= L ? m + 1 : 0]
                : Vec<T>{};
      if (m > 0) a += columns.q[l][m] * h_re;
      if (l > m) da += slope * h_re;
      if (m == 0) continue;
      const Vec<T> h_im = load(p + 2 * m * lanes<T>);
      b += columns.q[l][m] * h_im;
      if (l > m) db += slope * h_im;
    }
    if (m > 0) {
      // re, im: of (x + i y)^(m-1)
      gx += static_cast<T>(m) * (a * re + b * im);
      gy += static_cast<T>(m) * (b * re - a * im);
      const Vec<T> next = re * x - im * y;
      im = re * y + im * x;
      re = next;
    }
    gz += m > 0 ? da * re + db * im : da;
  }
  gradient[0] = gx;
  gradient[1] = gy;
  gradient[2] = gz;
}

// The same for a degree 1 .. 8 that is known at run time; compiled once, not where they are called.

#define PWMLFF_BY_DEGREE(name, ...)   \
  switch (degree) {                   \
    case 1:                           \
      return name<T, 1>(__VA_ARGS__); \
    case 2:                           \
      return name<T, 2>(__VA_ARGS__); \
    case 3:                           \
      return name<T, 3>(__VA_ARGS__); \
    case 4:                           \
      return name<T, 4>(__VA_ARGS__); \
    case 5:                           \
      return name<T, 5>(__VA_ARGS__); \
    case 6:                           \
      return name<T, 6>(__VA_ARGS__); \
    case 7:                           \
      return name<T, 7>(__VA_ARGS__); \
    default:                          \
      return name<T, 8>(__VA_ARGS__); \
  }

/// @param u [3] vectors
template <class T> [[gnu::noinline]] void harmonics_of_degree(int degree, const Vec<T> *u, T *out)
{
  PWMLFF_BY_DEGREE(harmonics, u[0], u[1], u[2], out)
}
template <class T>
[[gnu::noinline]] void harmonics_along_of_degree(int degree, const Vec<T> *u, const Vec<T> *p,
                                                 T *out, T *rates)
{
  PWMLFF_BY_DEGREE(harmonics_along, u, p, out, rates)
}
template <class T>
[[gnu::noinline]] void harmonics_gradient_of_degree(int degree, const Vec<T> *u, const T *h,
                                                    Vec<T> *gradient)
{
  PWMLFF_BY_DEGREE(harmonics_gradient, u[0], u[1], u[2], h, gradient)
}
#undef PWMLFF_BY_DEGREE

}    // namespace pwmlff::PWMLFF_ISA::nep
