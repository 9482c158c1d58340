// SPDX-License-Identifier: GPL-2.0-or-later

// In the place of kokkos_atoms.cpp, for a LAMMPS without the package.

#include "kokkos_atoms.h"

#include "pair_pwmlff.h"

namespace pair_pwmlff {

std::unique_ptr<KokkosAtoms> KokkosAtoms::make(LAMMPS_NS::LAMMPS *, std::string &absent)
{
  absent = "the plugin was compiled for a LAMMPS without package KOKKOS";
  return nullptr;
}

LAMMPS_NS::Pair *make_pair(LAMMPS_NS::LAMMPS *lmp, const std::string &style, OpenTorch *open_torch)
{
  return new LAMMPS_NS::PairPWMLFF(lmp, style, open_torch);
}

}    // namespace pair_pwmlff
