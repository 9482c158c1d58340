// SPDX-License-Identifier: GPL-2.0-or-later

// What rows near a center have, as a team kernel (common/team.h).

#pragma once

#include "../common/export.h"
#include "../common/team.h"

#include <cmath>
#include <cstdint>

namespace pwmlff {

/// The root mean square of the values of a center and of the rows near it, with weights 1 and
/// (1 - r^2/reach^2)^8.
struct MeanSquareNearby {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MeanSquareNearby";
  double inverse_reach_squared;
  int nspecies;
  const double *x;         // [nrows, 3]
  const int *first;        // [ncenters*nspecies + 1]
  const int *candidate;    // of a center one after the other, of whatever species
  const double *values;    // [nrows]
  double *result;          // [ncenters]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t center) const
  {
    const double *const xi = x + 3 * center;
    double squares = 0.0, weights = 0.0;
    const int end = first[(center + 1) * nspecies];
    for (int k = first[center * nspecies] + team.lane(); k < end; k += team.lanes()) {
      const std::int64_t j = candidate[k];
      const double *const xj = x + 3 * j;
      const double d[3] = {xj[0] - xi[0], xj[1] - xi[1], xj[2] - xi[2]};
      const double away = (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) * inverse_reach_squared;
      // max(1 - away, 0) without a branch: what is near is as good as random.
      const double inside = 0.5 * (1.0 - away + std::abs(1.0 - away));
      const double second = inside * inside, fourth = second * second;
      const double weight = fourth * fourth;
      weights += weight;
      squares += weight * values[j] * values[j];
    }
    squares = team.sum(squares) + values[center] * values[center];
    weights = team.sum(weights) + 1.0;
    if (team.lane() == 0) result[center] = std::sqrt(squares / weights);
  }
};

/// The same of all centers, on the CPU by threads.
PWMLFF_KERNELS_API void mean_square_nearby(const MeanSquareNearby &nearby, int ncenters,
                                           int nthreads);

}    // namespace pwmlff
