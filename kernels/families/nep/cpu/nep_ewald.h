// SPDX-License-Identifier: GPL-2.0-or-later

// Ewald's sum as NEPs with charges have it (../network.h).

#pragma once

#include "../../../core/cpu/ewald.h"
#include "../../../core/cpu/screened.h"
#include "../../../math/coulomb.h"
#include "../network.h"

#include <numbers>

namespace pwmlff::PWMLFF_ISA::nep {

struct NepEwald {
  explicit NepEwald(const NepNetwork &network) :
      real_space(network.charge_mode == 1),
      lattice(network.screening(), COULOMB, 2.0 * std::numbers::pi),
      screened(network.screening(), std::numbers::pi / network.screening()),
      self(2.0 * COULOMB * network.screening() / 1.7724538509055160273)    // sqrt(pi)
  {
  }

  const bool real_space;
  ReciprocalLattice lattice;
  const Screened screened;
  const double self;    // V/e, that the potential of real space has of an atom's own charge, less
};

}    // namespace pwmlff::PWMLFF_ISA::nep
