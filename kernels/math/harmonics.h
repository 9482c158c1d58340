// SPDX-License-Identifier: GPL-2.0-or-later

// Spherical harmonics and how three of them couple to a number that no rotation changes.
//
//   Y_lm(u) = (-1)^m sqrt((2l+1)/(4 pi) (l-m)!/(l+m)!) P_l^(m)(z) (x + i y)^m,   u = (x, y, z)
//
// for m >= 0, with P_l^(m) the m-th derivative of the Legendre polynomial P_l, and
// Y_l,-m = (-1)^m conj(Y_lm). Their integral over the sphere is orthonormal.
//
// Source: Edmonds 1957, Angular Momentum in Quantum Mechanics (Y_lm, and 3j by Racah's formula).

#pragma once

#include "../core/export.h"

#include <array>
#include <complex>
#include <vector>

namespace pwmlff {

/// (l1 l2 l3; m1 m2 m3); 0 where m1 + m2 + m3 is not 0. For l up to 6, where factorials are exact.
PWMLFF_KERNELS_API double wigner_3j(int l1, int l2, int l3, int m1, int m2, int m3);

/// Y_lm of l = 1 .. a largest one and m = 0 .. l.
class PWMLFF_KERNELS_API Harmonics {
 public:
  explicit Harmonics(int largest);

  /// Where Y_lm is in the arrays.
  static int place(int l, int m) { return l * (l + 1) / 2 - 1 + m; }
  int size() const { return place(largest, largest) + 1; }

  /// @param u  [3] of length 1
  void evaluate(const double *u);

  std::vector<std::complex<double>> y;                          // [size]
  std::vector<std::array<std::complex<double>, 3>> gradient;    // [size] by u, along the sphere

 private:
  int largest;
  /// [size][l + 1 - m] coefficients of z^k in all that stands before (x + i y)^m
  std::vector<std::vector<double>> polynomial;
};

}    // namespace pwmlff
