// SPDX-License-Identifier: GPL-2.0-or-later

// In the place of kokkos_atoms.cpp, for a LAMMPS without the package.

#include "kokkos_atoms.h"

namespace pair_pwmlff {

std::unique_ptr<KokkosAtoms> KokkosAtoms::make(LAMMPS_NS::LAMMPS *, std::string &absent)
{
  absent = "the plugin was compiled for a LAMMPS without package KOKKOS";
  return nullptr;
}

}    // namespace pair_pwmlff
