/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What a GPU can be asked to run: compiled by device_cuda.cu, or refused by device_stub.cpp.

#include "device_kernels.h"

namespace pwmlff {

template void launch_teams_cuda(std::int64_t, std::size_t, const FindEdges<float> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const FindEdges<double> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const EdgeMoments<float> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const EdgeMoments<double> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<float, 1> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<double, 1> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<float, 4> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<double, 4> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Differentiate<float> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Differentiate<double> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Forces<float> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const Forces<double> &, void *);
template void launch_teams_cuda(std::int64_t, std::size_t, const SumRows &, void *);

}    // namespace pwmlff
