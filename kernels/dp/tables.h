// SPDX-License-Identifier: GPL-2.0-or-later

// The embedding nets of a Deep Potential, tabulated for a precision.

#pragma once

#include "../common/export.h"
#include "network.h"
#include "spline.h"

#include <string>
#include <vector>

namespace pwmlff {

enum class DPPrecision {
  exact,           // float64, nets evaluated as they are
  double_table,    // float64, tabulated embedding nets
  mixed            // float32 tables, moments and fitting nets; float64 distances and sums
};

/// @param name "exact", "double" or "mixed"
/// @throws std::invalid_argument for another name
PWMLFF_KERNELS_API DPPrecision dp_precision(const std::string &name);

/// The embedding nets of the species that take part, tabulated for a precision.
struct DPTables {
  /// @param present [nspecies]
  /// @throws std::invalid_argument, or std::runtime_error for a net that cannot be tabulated
  DPTables(const DPNetwork &network, DPPrecision precision, const std::vector<bool> &present);

  std::vector<SplineTable> tables;    // [nspecies*nspecies] center first; empty in precision exact
  double value_error = 0.0, slope_error = 0.0;    // the largest of all tables
};

}    // namespace pwmlff
