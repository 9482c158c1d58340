// SPDX-License-Identifier: GPL-2.0-or-later

// The definition of launch_teams_cuda, for files that instantiate it for their kernels: these are
// compiled as CUDA or, in a build without it, as C++, to functions that refuse.

#ifndef PWMLFF_LAUNCH_GPU_H
#define PWMLFF_LAUNCH_GPU_H

#ifdef __CUDACC__
#include "team_cuda.h"
#else

#include "team.h"

#include <stdexcept>

namespace pwmlff {

// Never called: there is no CUDA device.
template <class Kernel>
void launch_teams_cuda(std::int64_t, std::size_t, const Kernel &, void *, const char **)
{
  throw std::runtime_error("this build of pair-pwmlff has no CUDA kernels");
}

}    // namespace pwmlff

#endif
#endif
