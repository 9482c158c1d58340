// SPDX-License-Identifier: GPL-2.0-or-later

// The engine for MACE models on the CPU. Features of rows that are no centers come through
// Input::exchange, so each rank evaluates its own atoms alone.

#pragma once

#include "../common/evaluation.h"
#include "../common/export.h"
#include "network.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff {

/// @param precision  exact (radial nets as they are), double (tabulated) or mixed (float32; sums of
///                   energies and forces in float64)
/// @param present    [nspecies]
/// @throws std::invalid_argument for another precision
PWMLFF_KERNELS_API std::unique_ptr<FusedEngine> make_mace_engine(const MaceNetwork &network,
                                                                 const std::string &precision,
                                                                 const std::vector<bool> &present);

}    // namespace pwmlff
