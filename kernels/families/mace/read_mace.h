// SPDX-License-Identifier: GPL-2.0-or-later

// Reads the arrays of a MACE model, by the names that python/pwmlff/convert/mace_network.py gives
// them.

#pragma once

#include "../../core/arrays.h"
#include "network.h"

namespace pwmlff {

/// @throws std::runtime_error where an array is missing or has another size than the others ask
///         for; the text names it
PWMLFF_KERNELS_API MaceNetwork read_mace(const Arrays &arrays);

}    // namespace pwmlff
