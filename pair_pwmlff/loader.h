/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Opens torch and the library with the pair style when the style is first used.
//
// Loading libtorch costs every rank about a quarter of a second and 100 MB; an lmp that has the
// plugin installed but runs something else must not pay that. So pwmlffplugin.so links neither
// torch nor the style. It finds torch, compares its release with the one that the style was compiled
// against (the C++ interface of torch changes with every release), and only then opens both.

#ifndef PWMLFF_LOADER_H
#define PWMLFF_LOADER_H

namespace pair_pwmlff {

/// Create a PairPWMLFF for the given LAMMPS instance. Collective over the ranks of its world; if any
/// rank cannot, all of them stop with that rank's message through Error::all.
/// @param style  its name in the input
void *create_pair(void *lmp, const char *style);

}    // namespace pair_pwmlff

#endif
