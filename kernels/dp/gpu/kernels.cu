// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../../common/launch_gpu.h"
#include "kernels.h"

namespace pwmlff {

template void launch_teams_cuda(std::int64_t, std::size_t, const FindEdges<float> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const FindEdges<double> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const EdgeMoments<float> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const EdgeMoments<double> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<float, 1> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<double, 1> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<float, 4> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Fit<double, 4> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Differentiate<float> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Differentiate<double> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Forces<float> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const Forces<double> &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const SumRows &, void *, const char **);

}    // namespace pwmlff
