// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include "../../../core/family.h"
#include "../network.h"

#include <memory>

namespace pwmlff {

/// An engine on settings.device.
/// @throws std::runtime_error where the model needs more scratch than the device has
std::unique_ptr<FusedEngine> make_mace_gpu_engine(const MaceNetwork &network,
                                                  const EngineSettings &settings);

}    // namespace pwmlff
