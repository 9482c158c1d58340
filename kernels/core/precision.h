// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include "export.h"

#include <string>

namespace pwmlff {

/// Of an engine.
enum class Precision {
  exact,     // float64, what can be tabulated as it is
  tables,    // float64, with tables
  mixed      // float32 with tables; float64 for distances, and for sums over atoms
};

/// @param name "exact", "double" for tables, or "mixed"
/// @throws std::invalid_argument for another name
PWMLFF_KERNELS_API Precision precision_of(const std::string &name);

}    // namespace pwmlff
