// SPDX-License-Identifier: GPL-2.0-or-later

// The Coulomb energy of the charges of a NEP by the formulas of network.h as they stand there.

#pragma once

#include "../../core/evaluation.h"
#include "network.h"

#include <vector>

namespace pwmlff {

struct PlainCoulomb {
  double mean_charge = 0.0;         // of the box
  std::vector<double> charge;       // [ncenters] less that
  std::vector<double> potential;    // [ncenters] less its mean
  std::vector<double> energy;       // [ncenters] of each atom
  std::vector<double> force;        // [ncenters, 3] at fixed charges
  std::vector<double> virial;       // [ncenters, 9] of each atom likewise, row by row

  /// @param input   with a box; all ranks call it together
  /// @param charge  [ncenters] before the mean is taken off; 0 of centers that take no part
  PlainCoulomb(const NepNetwork &network, const Input &input, std::vector<double> charge);

 private:
  void add_reciprocal(const NepNetwork &network, const Input &input);
  void add_real_space(const NepNetwork &network, const Input &input);
};

}    // namespace pwmlff
