// SPDX-License-Identifier: GPL-2.0-or-later

// Numbers of the real spherical harmonics, of which the formulas are in sphere.h.

#pragma once

namespace pwmlff {

/// Of degrees up to L, by [l][m].
template <int L> struct SphereConstants {
  double first[L + 1]{};    // Q_mm
  double a[L + 1][L + 1]{}, b[L + 1][L + 1]{};
  double derivative[L + 1][L + 1]{};    // s_lm/s_l,m+1

  constexpr SphereConstants()
  {
    for (int l = 0; l <= L; ++l) {
      first[l] = start(l);
      for (int m = 0; m < l; ++m) {
        a[l][m] = (2 * l - 1.0) / (l - m) * norm(l, m) / norm(l - 1, m);
        if (l - 2 >= m) b[l][m] = (l + m - 1.0) / (l - m) * norm(l, m) / norm(l - 2, m);
        derivative[l][m] = norm(l, m) / norm(l, m + 1);
      }
    }
  }

 private:
  static constexpr double square_root(double x)
  {
    double y = x > 1.0 ? x : 1.0;
    for (int k = 0; k < 200; ++k) y = 0.5 * (y + x / y);
    return y;
  }

  /// s_lm
  static constexpr double norm(int l, int m)
  {
    double square = (m > 0 ? 2.0 : 1.0) * (2 * l + 1) / (4.0 * 3.14159265358979323846);
    for (int k = l - m + 1; k <= l + m; ++k) square /= k;
    return (m % 2 ? -1.0 : 1.0) * square_root(square);
  }

  /// Q_mm = s_mm (2m - 1)!!
  static constexpr double start(int m)
  {
    double value = norm(m, m);
    for (int k = 2 * m - 1; k > 1; k -= 2) value *= k;
    return value;
  }
};
template <int L> inline constexpr SphereConstants<L> sphere_constants{};

}    // namespace pwmlff
