// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include "../team.h"

#include <cstdint>

namespace pwmlff {

/// target += factor * values
struct AddScaled {
  static constexpr int lanes = 1;
  static constexpr const char *name = "AddScaled";
  double factor;
  const double *values;
  double *target;

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t k) const
  {
    target[k] += factor * values[k];
  }
};

}    // namespace pwmlff
