// SPDX-License-Identifier: GPL-2.0-or-later

// What a model of kind EDGE may ask for beside its edges (docs/model_contract.md).

#pragma once

#include "core/evaluation.h"

#include <cstdint>
#include <vector>

namespace pwmlff::models {

/// Of each edge i-j the edge j-i between the same copies of the two atoms.
/// @param cutoff  of the edges
/// @return [nedges] indices of edges; -1 where no edges start at j, as at the end of the range
std::vector<std::int64_t> reverse_edges(const pwmlff::Input &input, double cutoff);

/// Pairs of different edges of one center, both shorter than a cutoff, in the order of edges; each
/// pair in both orders.
/// @return [2, n] indices of edges
std::vector<std::int64_t> edge_pairs(const pwmlff::Input &input, double cutoff);

}    // namespace pwmlff::models
