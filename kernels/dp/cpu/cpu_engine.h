// SPDX-License-Identifier: GPL-2.0-or-later

// The engine on the CPU.

#pragma once

#include "../engine.h"

namespace pwmlff {

/// An engine whose processor() is what instruction_set_name() is now. The same input and nthreads
/// give the same bits.
/// @throws as DPEngine, and std::runtime_error for an unusable PWMLFF_CPU
PWMLFF_KERNELS_API std::unique_ptr<DPEngine> make_cpu_engine(DPNetwork network,
                                                             DPPrecision precision,
                                                             const std::vector<bool> &present);

}    // namespace pwmlff
