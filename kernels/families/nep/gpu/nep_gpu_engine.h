// SPDX-License-Identifier: GPL-2.0-or-later

// The evaluation of a NEP on a device (core/device.h); steps in kernels.h.

#pragma once

#include "../../../core/family.h"
#include "../../../core/gpu/engine_parts.h"
#include "../network.h"

#include <memory>

namespace pwmlff {

/// An engine that takes Input::on_device, with lists of at least the cutoff of the network.
/// Energies come out the same bit by bit every time; forces are added up by atomics in float64, so
/// their last digits depend on the order of events.
/// @throws std::runtime_error for a model that needs more shared memory than the device has
std::unique_ptr<FusedEngine> make_nep_gpu_engine(const NepNetwork &network,
                                                 const EngineSettings &settings);

}    // namespace pwmlff
