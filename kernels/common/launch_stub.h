/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// The definition of launch_cuda in a build without CUDA.

#ifndef PWMLFF_LAUNCH_STUB_H
#define PWMLFF_LAUNCH_STUB_H

#include "launch.h"

#include <stdexcept>

namespace pwmlff {

template <typename Kernel> void launch_cuda(std::int64_t, const Kernel &, void *)
{
  throw std::runtime_error(
      "this build of pair-pwmlff has no CUDA kernels: reinstall it where nvcc is "
      "on the PATH, or with -DPWMLFF_CUDA=ON to see what is missing");
}

}    // namespace pwmlff

#endif
