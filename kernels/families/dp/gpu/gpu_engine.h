// SPDX-License-Identifier: GPL-2.0-or-later

// The engine on a device (core/device.h); steps in kernels.h.

#pragma once

#include "../../../core/gpu/engine_parts.h"
#include "../engine.h"

namespace pwmlff {

/// An engine that takes Input::on_device. In precision mixed, tables, moments and what flows back
/// through them are in float32, distances, fitting nets and sums in float64. Energies come out the
/// same bit by bit every time; forces are added up by atomics in float64, so their last digits
/// depend on the order of events.
/// @throws as DPEngine, and std::runtime_error for nets that are too large for the device
std::unique_ptr<FusedEngine> make_dp_gpu_engine(const DPNetwork &network,
                                                const EngineSettings &settings);

}    // namespace pwmlff
