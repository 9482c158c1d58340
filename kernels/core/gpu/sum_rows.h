// SPDX-License-Identifier: GPL-2.0-or-later

// Sums over rows, always in the same order.

#pragma once

#include "../team.h"

#include <cstdint>

namespace pwmlff {

struct SumRows {
  static constexpr int lanes = 256;
  static constexpr const char *name = "SumRows";
  std::int64_t nrows;
  int ncolumns, nteams;
  const double *values;    // [nrows, ncolumns]
  double *sums;            // [nteams, ncolumns]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    double *const partial = team.template scratch<double>();    // [lanes]
    for (int c = 0; c < ncolumns; ++c) {
      double sum = 0.0;
      for (std::int64_t r = item * team.lanes() + team.lane(); r < nrows;
           r += static_cast<std::int64_t>(nteams) * team.lanes())
        sum += values[r * ncolumns + c];
      team.sync();
      partial[team.lane()] = sum;
      for (int half = team.lanes() / 2; half > 0; half /= 2) {
        team.sync();
        if (team.lane() < half) partial[team.lane()] += partial[team.lane() + half];
      }
      if (team.lane() == 0) sums[item * ncolumns + c] = partial[0];
    }
  }
};

}    // namespace pwmlff
