// SPDX-License-Identifier: GPL-2.0-or-later

// The embedding nets of a Deep Potential, tabulated for a precision.

#pragma once

#include "../../core/precision.h"
#include "network.h"
#include "spline.h"

#include <vector>

namespace pwmlff {

/// The embedding nets of the species that take part, tabulated for a precision.
struct DPTables {
  /// @param present [nspecies]
  /// @throws std::invalid_argument, or std::runtime_error for a net that cannot be tabulated
  DPTables(const DPNetwork &network, Precision precision, const std::vector<bool> &present);

  std::vector<SplineTable> tables;    // [nspecies*nspecies] center first; empty in precision exact
  double value_error = 0.0, slope_error = 0.0;    // the largest of all tables
};

}    // namespace pwmlff
