// SPDX-License-Identifier: GPL-2.0-or-later

// The evaluation of a NEP on a device (common/device.h); steps in kernels.h.

#pragma once

#include "../../gpu/engine_parts.h"
#include "../network.h"

#include "../../common/export.h"

#include <memory>
#include <vector>

namespace pwmlff {

/// An engine that takes Input::on_device, with lists of at least the cutoff of the network.
/// Energies come out the same bit by bit every time; forces are added up by atomics in float64, so
/// their last digits depend on the order of events.
/// @param single   precision mixed instead of float64
/// @param present  [nspecies] the species of centers
/// @param chunk_bytes of the device for arrays over edges: what needs more goes in several parts
/// @throws std::runtime_error for a model that needs more shared memory than the device has
PWMLFF_KERNELS_API std::unique_ptr<FusedEngine> make_nep_gpu_engine(
    std::shared_ptr<Device> device, const NepNetwork &network, bool single,
    const std::vector<bool> &present, std::size_t chunk_bytes = CHUNK_BYTES);

}    // namespace pwmlff
