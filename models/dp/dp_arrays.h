// SPDX-License-Identifier: GPL-2.0-or-later

// From a file of kind DP to what the fused engines take.

#pragma once

#include "../model_file.h"
#include "core/arrays.h"

namespace pwmlff::models {

/// Add what a file says of its kind, elements, cutoff Rmax and slots: maxNeighborNum and sel, which
/// stays empty where it holds something else than ntypes numbers from 1 to maxNeighborNum, as files
/// of other programs may. Types that take part have maxNeighborNum then; in a file of a training of
/// an older release, which has no sel, all types have.
/// @throws std::runtime_error where one is missing, or is not what a simulation can have
void describe_dp(const ModelFile &file, ModelInfo &info);

/// The arrays of families/dp/read_dp.h out of a module with the attributes and parameter names of
/// the DP contract; parameters of any float type become float64.
/// @param info  of describe_dp()
/// @throws std::runtime_error that names an attribute that is missing or of another form, or
///         statistics that differ between the slots of one pair of species
pwmlff::Arrays dp_arrays(const ModelFile &file, const ModelInfo &info);

}    // namespace pwmlff::models
