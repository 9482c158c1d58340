/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What a GPU can be asked to run.

#include "../common/launch_gpu.h"
#include "descriptor_kernels.h"

namespace pwmlff {

template void launch_cuda(std::int64_t, const Environment<float> &, void *);
template void launch_cuda(std::int64_t, const Environment<double> &, void *);
template void launch_cuda(std::int64_t, const EnvironmentBackward<float> &, void *);
template void launch_cuda(std::int64_t, const EnvironmentBackward<double> &, void *);
template void launch_cuda(std::int64_t, const TableEmbedding<float> &, void *);
template void launch_cuda(std::int64_t, const TableEmbedding<double> &, void *);
template void launch_cuda(std::int64_t, const TableEmbeddingBackward<float> &, void *);
template void launch_cuda(std::int64_t, const TableEmbeddingBackward<double> &, void *);
template void launch_cuda(std::int64_t, const Moments<float> &, void *);
template void launch_cuda(std::int64_t, const Moments<double> &, void *);
template void launch_cuda(std::int64_t, const MomentsToEnv<float> &, void *);
template void launch_cuda(std::int64_t, const MomentsToEnv<double> &, void *);
template void launch_cuda(std::int64_t, const MomentsToG<float> &, void *);
template void launch_cuda(std::int64_t, const MomentsToG<double> &, void *);

}    // namespace pwmlff
