// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../common/launch_gpu.h"
#include "edge_kernels.h"

namespace pwmlff {

template void launch_cuda(std::int64_t, const EdgeScatter<float> &, void *);
template void launch_cuda(std::int64_t, const EdgeScatter<double> &, void *);
template void launch_cuda(std::int64_t, const EdgeGather<float> &, void *);
template void launch_cuda(std::int64_t, const EdgeGather<double> &, void *);

}    // namespace pwmlff
