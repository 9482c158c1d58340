// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

namespace pwmlff {

/// e^2/(4 pi epsilon_0), eV angstrom, as GPUMD and LAMMPS's units metal have it.
constexpr double COULOMB = 14.399645;

}    // namespace pwmlff
