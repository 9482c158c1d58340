// SPDX-License-Identifier: GPL-2.0-or-later

// Energies, forces and virials of a Deep Potential, without torch and autograd.
//
// Formulas are in network.h. Embedding nets are splines of the distance (spline.h), or evaluated as
// they are in precision exact and for atoms with a neighbor closer than the splines reach. Slots
// without neighbor enter in closed form, so energy and forces are continuous when atoms cross the
// cutoff. Forces are the derivatives of what is evaluated, splines included; signs in evaluation.h.

#pragma once

#include "../common/evaluation.h"
#include "../common/export.h"
#include "network.h"
#include "tables.h"

#include <memory>
#include <vector>

namespace pwmlff {

/// What cpu/cpu_engine.h and gpu/gpu_engine.h make.
class PWMLFF_KERNELS_API DPEngine : public FusedEngine {
 public:
  ~DPEngine() override;

  const DPNetwork &network() const { return network_; }
  /// Largest errors of G and dG/dr of the tables before rounding (spline.h).
  double value_error() const { return splines.value_error; }
  double slope_error() const { return splines.slope_error; }

 protected:
  /// @param present [nspecies] the species that take part: slots of others are ignored, unless the
  ///                network counts those of all
  /// @throws std::invalid_argument, std::runtime_error for a net that cannot be tabulated
  DPEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present,
           std::shared_ptr<Device> device);

  const DPNetwork network_;
  const std::vector<bool> present;    // [nspecies] those with slots
  DPTables splines;                   // the derived class takes the coefficients
  Evaluation result;
};

}    // namespace pwmlff
