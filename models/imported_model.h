// SPDX-License-Identifier: GPL-2.0-or-later

// A file of a family that has files of its own, such as nep.txt. This project's own code evaluates
// it, as such a file brings none.

#pragma once

#include "model.h"

#include "core/family.h"

#include <memory>
#include <string>

namespace pwmlff::models {

/// @param family  family_of_file() of the contents
/// @throws std::runtime_error where the file is damaged or of a kind that is not evaluated, and
///         where an engine or device is demanded that cannot run it
std::unique_ptr<Model> make_imported_model(const std::string &file, const std::string &contents,
                                           const pwmlff::Family &family,
                                           const EngineOptions &options);

}    // namespace pwmlff::models
