// SPDX-License-Identifier: GPL-2.0-or-later

// Reads the arrays of a MACE model as python/pwmlff/convert/mace_network.py writes them:
//
//   pwmlff-mace 1
//   array NAME DIMENSION ...     a line for each array
//   numbers
//
// and behind that line the numbers of all arrays, float64 with the low byte first.

#pragma once

#include "../common/export.h"
#include "network.h"

#include <string_view>

namespace pwmlff {

/// @param contents  of the extra file "mace-arrays": the line "pwmlff-mace 1", then for each array
///                  a line "array NAME DIMENSION...", the line "numbers", and those of all arrays
///                  in this order, float64, low bytes first (docs/model_contract.md)
/// @throws std::runtime_error where an array is missing or has another size than the others ask
///         for; the text names it
PWMLFF_KERNELS_API MaceNetwork read_mace(std::string_view contents);

}    // namespace pwmlff
