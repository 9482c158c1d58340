// SPDX-License-Identifier: GPL-2.0-or-later

// Energies, forces and virials of a Deep Potential, without torch and autograd.
//
// Formulas are in network.h. Embedding nets are splines of the distance (spline.h), or evaluated as
// they are in precision exact and for atoms with a neighbor closer than the splines reach. Slots
// without neighbor enter in closed form, so energy and forces are continuous when atoms cross the
// cutoff. Forces are the derivatives of what is evaluated, splines included; signs in evaluation.h.

#pragma once

#include "../../core/family.h"
#include "network.h"
#include "tables.h"

#include <memory>
#include <vector>

namespace pwmlff {

/// What engines for the CPU and for GPUs (gpu/gpu_engine.h) share.
class DPEngine : public FusedEngine {
 protected:
  /// @throws std::invalid_argument, std::runtime_error for a net that cannot be tabulated
  DPEngine(DPNetwork network, const EngineSettings &settings);

  const DPNetwork network_;
  const std::vector<bool> taking_part;    // [nspecies]
  const std::vector<bool> present;        // [nspecies] those with slots
  DPTables splines;                       // the derived class takes the coefficients
  Evaluation result;
};

/// The same input and nthreads give the same bits on the CPU.
/// @param settings  slots of species that are not present are ignored, unless the network counts
///                  those of all
/// @throws as DPEngine, std::runtime_error for an unusable PWMLFF_CPU, and for nets that are too
///         large for a device
PWMLFF_KERNELS_API std::unique_ptr<FusedEngine> make_dp_engine(const DPNetwork &network,
                                                               const EngineSettings &settings);

}    // namespace pwmlff
