// SPDX-License-Identifier: GPL-2.0-or-later

// What an evaluation takes in memory, before it is made.

#pragma once

#include "core/evaluation.h"

#include <functional>

namespace pwmlff::models {

/// Bytes of tensors on the CPU that an evaluation has at its peak, beside those there are already.
/// Two evaluations of a part of the edges, those that start at the first few nodes, give a line in
/// the number of edges, which what follows edges and pairs of edges keeps to.
/// @param input     with its edges
/// @param evaluate  evaluates the model; its results are not looked at
/// @return 0 where there are too few nodes for parts, or where such an evaluation fails
double expected_peak(const pwmlff::Input &input,
                     const std::function<void(const pwmlff::Input &)> &evaluate);

}    // namespace pwmlff::models
