// SPDX-License-Identifier: GPL-2.0-or-later

// Ewald's sum as NEPs with charges have it (network.h).

#pragma once

#include "../../math/coulomb.h"
#include "../../math/ewald/reciprocal_lattice.h"
#include "network.h"

#include <numbers>

namespace pwmlff {

struct NepEwald {
  PWMLFF_FORMULA explicit NepEwald(const NepNetwork &network) :
      real_space(network.charge_mode == 1),
      alpha(network.screening()),
      cutoff(std::numbers::pi / alpha),
      self(2.0 * COULOMB * alpha * std::numbers::inv_sqrtpi),
      lattice(alpha, COULOMB, 2.0 * std::numbers::pi)
  {
  }

  const bool real_space;
  const double alpha, cutoff;    // 1/angstrom; angstrom, the largest of real space
  const double self;    // V/e, that the potential of real space has of an atom's own charge, less
  ReciprocalLattice lattice;
};

}    // namespace pwmlff
