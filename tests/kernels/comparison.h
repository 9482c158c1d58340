// SPDX-License-Identifier: GPL-2.0-or-later

// What programs that test engines compare numbers by.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>

/// Comparisons that failed.
inline int failures = 0;

/// The largest difference of numbers [n], against what is allowed; one that is no number fails.
inline void compare(const std::string &what, const double *found, const double *wanted,
                    std::size_t n, double tolerance)
{
  double worst = 0.0;
  for (std::size_t k = 0; k < n; ++k) {
    const double error = std::abs(found[k] - wanted[k]);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  if (worst <= tolerance) return;
  std::cout << what << " differ by " << worst << ", allowed " << tolerance << "\n";
  ++failures;
}
