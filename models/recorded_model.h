// SPDX-License-Identifier: GPL-2.0-or-later

// A file of TorchScript by its record, without torch.

#pragma once

#include "record.h"

#include <memory>
#include <string>

namespace pwmlff::models {

/// Evaluated by a fused engine. Its own code is loaded, with torch, when something else is needed:
/// for species of which the record says nothing, where no engine gives what it says, and as a
/// partner.
std::unique_ptr<Model> make_recorded_model(const std::string &file, const std::string &contents,
                                           Record record, const EngineOptions &options);

}    // namespace pwmlff::models
