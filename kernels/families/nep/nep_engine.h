// SPDX-License-Identifier: GPL-2.0-or-later

// The fast evaluation of a NEP, by the formulas of network.h.
//
// Series of Chebyshev polynomials are summed over the neighbors of a species before the
// coefficients multiply them (radial part), or folded for each pair of species (angular part);
// harmonics are real (math/sphere.h). Precision mixed has all in float32 but positions and their
// differences, ZBL, and sums over atoms.

#pragma once

#include "../../core/family.h"
#include "network.h"

#include <memory>

namespace pwmlff {

/// The same input and nthreads give the same bits on the CPU.
/// @param settings  exact and tables are the same: float64. Species that are not present take no
///                  memory here
/// @throws std::runtime_error for more functions of the angular part than there is code for, for
///         an unusable PWMLFF_CPU, and as make_nep_gpu_engine() where there is a device
PWMLFF_KERNELS_API std::unique_ptr<FusedEngine> make_nep_engine(const NepNetwork &network,
                                                                const EngineSettings &settings);

}    // namespace pwmlff
