// SPDX-License-Identifier: GPL-2.0-or-later

// The screened repulsion of a pair, for the fast engines on the CPU and on GPUs.

#pragma once

#include "half_cosine.h"
#include "network.h"

#include <math.h>

namespace pwmlff {

/// ZBL of a pair and its derivative by r.
struct NepZblTerms {
  double value, slope;

  /// @param r  below zbl.reach
  PWMLFF_FORMULA NepZblTerms(const NepZbl &zbl, double r)
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
