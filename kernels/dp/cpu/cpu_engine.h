// SPDX-License-Identifier: GPL-2.0-or-later

// Energies, forces and virials of a Deep Potential on the CPU, without torch and autograd.
//
// Formulas are in network.h. Embedding nets are splines of the distance (spline.h), or evaluated as
// they are in precision exact and for atoms with a neighbor closer than the splines reach. Slots
// without neighbor enter in closed form, so energy and forces are continuous when atoms cross the
// cutoff. Forces are the derivatives of what is evaluated, splines included; signs in evaluation.h.

#ifndef PWMLFF_DP_CPU_ENGINE_H
#define PWMLFF_DP_CPU_ENGINE_H

#include "../../common/export.h"
#include "../evaluation.h"
#include "../network.h"
#include "../tables.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pwmlff {

/// Evaluates one model. The same input and nthreads give the same bits.
class PWMLFF_KERNELS_API DPEngine {
 public:
  /// @param present [nspecies] the species that take part: slots of others are ignored, unless the
  ///                network counts those of all
  /// @throws std::invalid_argument, std::runtime_error (a net that cannot be tabulated, or an
  ///         unusable PWMLFF_CPU)
  DPEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present);
  ~DPEngine();
  DPEngine(const DPEngine &) = delete;
  DPEngine &operator=(const DPEngine &) = delete;

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @throws DPOverflow, std::invalid_argument
  void evaluate(const DPInput &input, DPOutput &output);

  std::size_t table_bytes() const;    // of all tables together; 0 in precision exact
  double value_error() const;         // largest error of the tables before rounding (spline.h), of
  double slope_error() const;         // G and dG/dr
  const char *isa() const;            // what dp_instruction_set() was when it was made

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

}    // namespace pwmlff

#endif
