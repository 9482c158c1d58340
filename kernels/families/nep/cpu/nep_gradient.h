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
  /// @param velocity  [nrows, 3] of the rows, so that t_ij = velocity_j - velocity_i
  /// @param gradient  a dE/dp - (dE/dp)' is added (../nep_training.h)
  virtual void add(const Input &input, double a, const double *velocity, double *gradient) = 0;
};

#define PWMLFF_DECLARE_GRADIENT(isa)                                     \
  namespace isa {                                                        \
  NepGradient *make_nep_gradient(const NepNetwork &network, bool single, \
                                 const std::vector<bool> &present);      \
  }
PWMLFF_DECLARE_GRADIENT(baseline)
PWMLFF_DECLARE_GRADIENT(avx2)
PWMLFF_DECLARE_GRADIENT(avx512)
#undef PWMLFF_DECLARE_GRADIENT

}    // namespace pwmlff
