/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// The definition of launch_teams_cuda in a build without CUDA. There is no CUDA device then, so
// nobody calls it.

#ifndef PWMLFF_TEAM_STUB_H
#define PWMLFF_TEAM_STUB_H

#include "team.h"

#include <stdexcept>

namespace pwmlff {

template <class Kernel>
void launch_teams_cuda(std::int64_t, std::size_t, const Kernel &, void *, const char **)
{
  throw std::runtime_error("this build of pair-pwmlff has no CUDA kernels");
}

}    // namespace pwmlff

#endif
