// SPDX-License-Identifier: GPL-2.0-or-later

// Neuroevolution potentials: nep.txt of GPUMD, NEP_CPU and MatPL. This project's own code evaluates
// them, as such a file has none.

#pragma once

#include "../model.h"

#include <memory>
#include <string>

namespace pwmlff::models {

/// @throws std::runtime_error where the file is damaged or of a kind of NEP that is not evaluated,
///         and where an engine or device is demanded that cannot run it
std::unique_ptr<Model> make_nep_model(const std::string &file, const std::string &contents,
                                      const EngineOptions &options);

}    // namespace pwmlff::models
