// SPDX-License-Identifier: GPL-2.0-or-later

// A NEP as arrays by the names and with the shapes of NepNetwork (network.h), [nspecies, nspecies]
// for pairs. Numbers are there as arrays without dimension, warnings as texts warning.0 and so on.
// What a model does not have is not there.

#pragma once

#include "../../core/arrays.h"
#include "network.h"

namespace pwmlff {

PWMLFF_KERNELS_API Arrays nep_arrays(const NepNetwork &network);

/// @throws std::runtime_error that names what is missing, or of the wrong shape
PWMLFF_KERNELS_API NepNetwork nep_of(const Arrays &arrays);

}    // namespace pwmlff
