// SPDX-License-Identifier: GPL-2.0-or-later

// The engine on a device (common/device.h); steps in kernels.h.

#pragma once

#include "../../gpu/engine_parts.h"
#include "../engine.h"

namespace pwmlff {

/// An engine that takes Input::on_device. In precision mixed, tables, moments and what flows back
/// through them are in float32, distances, fitting nets and sums in float64. Energies come out the
/// same bit by bit every time; forces are added up by atomics in float64, so their last digits
/// depend on the order of events.
/// @param chunk_bytes of the device for arrays over edges: what needs more goes in several parts
/// @throws as DPEngine, and std::runtime_error for nets that are too large for the device
PWMLFF_KERNELS_API std::unique_ptr<DPEngine> make_gpu_engine(std::shared_ptr<Device> device,
                                                             const DPNetwork &network,
                                                             DPPrecision precision,
                                                             const std::vector<bool> &present,
                                                             std::size_t chunk_bytes = CHUNK_BYTES);

}    // namespace pwmlff
