// SPDX-License-Identifier: GPL-2.0-or-later

// From a file of kind DP to what the fused engines take.

#pragma once

#include "../model_file.h"
#include "dp/network.h"

namespace pwmlff::models {

/// Add what a file says of its kind, elements, cutoff Rmax and slots: maxNeighborNum and sel, which
/// stays empty where it holds something else than ntypes numbers from 1 to maxNeighborNum, as files
/// of other programs may. Types that take part have maxNeighborNum then; in a file of a training of
/// an older release, which has no sel, all types have.
/// @throws std::runtime_error where one is missing, or is not what a simulation can have
void describe_dp(const ModelFile &file, ModelInfo &info);

/// What a hidden fitting layer after the first that keeps the width and has no resnet_dt gives. The
/// parameters do not tell; the exporters of PWMLFF and MatPL write the first form.
enum class PlainLayers {
  residual,    // x + tanh(z)
  tanh
};

/// Take the arrays out of a module with the attributes and parameter names of the DP contract;
/// parameters of any float type become float64. One embedding net for all pairs that takes a vector
/// of the neighbor's species, too, becomes one for each pair: the vector moves its first bias.
/// @param info  of describe_dp()
/// @throws std::runtime_error that names what is missing, unknown or of the wrong shape, or
///         statistics that differ between the slots of one pair of species
DPNetwork read_network(const ModelFile &file, const ModelInfo &info,
                       PlainLayers plain_layers = PlainLayers::residual);

}    // namespace pwmlff::models
