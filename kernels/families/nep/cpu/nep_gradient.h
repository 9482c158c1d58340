// SPDX-License-Identifier: GPL-2.0-or-later

// Between training and its code that is compiled once per instruction set.

#pragma once

#include "../../../core/evaluation.h"
#include "../network.h"

#include <vector>

namespace pwmlff {

/// The gradient of a NEP by its parameters, on one thread.
class NepGradient {
 public:
  virtual ~NepGradient();
  /// @param velocity  [nrows, 3] zeros
  /// @param q         [ncenters, ndescriptors] out, before scaling
  virtual void describe(const Input &input, const double *velocity, double *q) = 0;
  /// Of a model with charges.
  /// @param velocity  [nrows, 3] of the rows, so that t_ij = velocity_j - velocity_i
  /// @param charge    [ncenters, 2] out: without the mean, and their rates
  virtual void charges(const Input &input, const double *velocity, double *charge) = 0;
  /// @param potential [ncenters, 2] potentials of charges and their rates; null without charges
  /// @param energy    factor of the energy of the network beside that of charges
  /// @param gradient  a dE/dp - (dE/dp)' is added (../nep_training.h)
  virtual void add(const Input &input, double a, const double *velocity, const double *potential,
                   double energy, double *gradient) = 0;
};

/// Potentials of charges and their rates (charge_rates.h), on one thread.
class NepPotentials {
 public:
  virtual ~NepPotentials();
  /// @param input      with a box; node_row is the center that each row is an image of
  /// @param w          [3, 3] strain of the box, as NepTraining::add_gradient() has it
  /// @param charge     [ncenters, 2] and rates; their means are taken off
  /// @param potential  [ncenters, 2] out
  virtual void evaluate(const Input &input, const double *velocity, const double *w, double *charge,
                        double *potential) = 0;
};

#define PWMLFF_DECLARE_GRADIENT(isa)                                     \
  namespace isa {                                                        \
  NepGradient *make_nep_gradient(const NepNetwork &network, bool single, \
                                 const std::vector<bool> &present);      \
  NepPotentials *make_nep_potentials(const NepNetwork &network);         \
  }
PWMLFF_DECLARE_GRADIENT(baseline)
PWMLFF_DECLARE_GRADIENT(avx2)
PWMLFF_DECLARE_GRADIENT(avx512)
#undef PWMLFF_DECLARE_GRADIENT

}    // namespace pwmlff
