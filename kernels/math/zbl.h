// SPDX-License-Identifier: GPL-2.0-or-later

// The screened repulsion of two nuclei at short distances, for all engines on the CPU and on GPUs.
//
//   E(r) = S(r) (1/r) sum over k of amplitude[k] exp(-decay[k] r)      r < reach, else 0
//   S(r) = 1 up to inner, (1 + cos(pi (r - inner)/(outer - inner)))/2 up to outer, 0 beyond
//
// Lengths are in angstrom, energies in eV. Each of the two atoms has half of the energy.
//
// Source: Ziegler, Biersack, Littmark 1985, The Stopping and Range of Ions in Matter (ZBL).

#pragma once

#include "coulomb.h"
#include "half_cosine.h"

#include <math.h>

#include <algorithm>

namespace pwmlff {

/// Here r is the distance itself: the screening length and the charges are part of the numbers.
struct ZblPair {
  double inner = 0.0, outer = 0.0;    // 0 <= inner <= outer; outer 0: no such term
  double reach = 0.0;                 // at most outer
  double amplitude[4] = {};           // eV angstrom
  double decay[4] = {};               // 1/angstrom
};

/// The screening function of the source: sum of UNIVERSAL_A[k] exp(-UNIVERSAL_B[k] r/s) with
/// s = 0.46850 / (Z_a^0.23 + Z_b^0.23).
constexpr double UNIVERSAL_A[4] = {0.18175, 0.50986, 0.28022, 0.02817},
                 UNIVERSAL_B[4] = {3.1998, 0.94229, 0.4029, 0.20162};

/// @param z1, z2  atomic numbers
/// @param a, b    of the screening function
inline ZblPair zbl_pair(int z1, int z2, double inner, double outer, double reach,
                        const double *a = UNIVERSAL_A, const double *b = UNIVERSAL_B)
{
  constexpr double inverse_screening_length = 2.134563;    // 1/angstrom, as in GPUMD
  const double scale = inverse_screening_length * (pow(z1, 0.23) + pow(z2, 0.23));
  ZblPair result{inner, outer, std::min(outer, reach), {}, {}};
  for (int k = 0; k < 4; ++k) {
    result.amplitude[k] = COULOMB * z1 * z2 * a[k];
    result.decay[k] = scale * b[k];
  }
  return result;
}

/// Energy of a pair and its derivative by r.
struct ZblTerms {
  double value, slope;

  /// @param r  below zbl.reach
  PWMLFF_FORMULA ZblTerms(const ZblPair &zbl, double r)
  {
    double sum = 0.0, by_r = 0.0;
    PWMLFF_NO_UNROLL    // four exponentials at once would take too many registers
        for (int k = 0; k < 4; ++k)
    {
      const double term = zbl.amplitude[k] * exp(-zbl.decay[k] * r);
      sum += term;
      by_r -= zbl.decay[k] * term;
    }
    const double bare = sum / r, dbare = (by_r - bare) / r;
    double s = 1.0, ds = 0.0;
    if (r > zbl.inner) {
      const double per_width = 1.0 / (zbl.outer - zbl.inner);
      double sine, cosine;
      half_cosine<double>((r - zbl.inner) * per_width - 0.5, sine, cosine);
      s = 0.5 - 0.5 * sine;
      ds = -0.5 * 3.14159265358979323846 * per_width * cosine;
    }
    value = s * bare;
    slope = s * dbare + ds * bare;
  }
};

}    // namespace pwmlff
