// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

namespace pwmlff::models {

/// Thrown where TorchScript has to run and libpwmlff_torch is not open (model.h). It is no
/// std::exception: nothing is to pass an engine over for it.
struct TorchNotOpen {};

}    // namespace pwmlff::models
