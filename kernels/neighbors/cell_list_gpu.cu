// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../common/launch_gpu.h"
#include "cell_list_kernels.h"

namespace pwmlff {

template void launch_teams_cuda(std::int64_t, std::size_t, const CountInCells &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const PlaceInCells &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const SortCells &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const GatherCells &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const SumChunks &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const ScanChunks &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const AddChunks &, void *,
                                const char **);
template void launch_teams_cuda(std::int64_t, std::size_t, const SearchCells &, void *,
                                const char **);

}    // namespace pwmlff
