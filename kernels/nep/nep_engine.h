// SPDX-License-Identifier: GPL-2.0-or-later

// The fast evaluation of a NEP on the CPU, by the formulas of network.h.
//
// Series of Chebyshev polynomials are summed over the neighbors of a species before the
// coefficients multiply them (radial part), or folded for each pair of species (angular part);
// harmonics are real (cpu/sphere.h). Precision mixed has all in float32 but positions and their
// differences, ZBL, and sums over atoms.

#pragma once

#include "../common/evaluation.h"
#include "../common/export.h"
#include "network.h"

#include <memory>
#include <vector>

namespace pwmlff {

/// The same input and nthreads give the same bits.
/// @param present [nspecies] the species that take part; others take no memory here
/// @param single  precision mixed instead of float64
/// @throws std::runtime_error for more functions of the angular part than there is code for, and
///         for an unusable PWMLFF_CPU
PWMLFF_KERNELS_API std::unique_ptr<FusedEngine> make_nep_engine(const NepNetwork &network,
                                                                bool single,
                                                                const std::vector<bool> &present);

}    // namespace pwmlff
