// SPDX-License-Identifier: GPL-2.0-or-later

// The definitions of launch_cuda and launch_teams_cuda, for files that instantiate them for their
// kernels: these are compiled as CUDA or, in a build without it, as C++, to functions that refuse.

#ifndef PWMLFF_LAUNCH_GPU_H
#define PWMLFF_LAUNCH_GPU_H

/// In the one file that compiles a team kernel for GPUs, within namespace pwmlff.
#define PWMLFF_RUNS_ON_GPU(...)                                                           \
  template void launch_teams_cuda(std::int64_t, std::size_t, const __VA_ARGS__ &, void *, \
                                  const char **)

#ifdef __CUDACC__
#include "launch_cuda.h"
#include "team_cuda.h"
#else

#include "launch.h"
#include "team.h"

#include <stdexcept>

namespace pwmlff {

template <typename Kernel> void launch_cuda(std::int64_t, const Kernel &, void *)
{
  throw std::runtime_error(
      "this build of pair-pwmlff has no CUDA kernels: reinstall it where nvcc is "
      "on the PATH, or with -DPWMLFF_CUDA=ON to see what is missing");
}

// Never called: there is no CUDA device.
template <class Kernel>
void launch_teams_cuda(std::int64_t, std::size_t, const Kernel &, void *, const char **)
{
  throw std::runtime_error("this build of pair-pwmlff has no CUDA kernels");
}

}    // namespace pwmlff

#endif
#endif
