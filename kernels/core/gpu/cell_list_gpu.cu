// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../team_cuda.h"
#include "cell_list_kernels.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(BoundRows);
PWMLFF_RUNS_ON_GPU(CountInCells);
PWMLFF_RUNS_ON_GPU(PlaceInCells);
PWMLFF_RUNS_ON_GPU(SortCells);
PWMLFF_RUNS_ON_GPU(GatherCells);
PWMLFF_RUNS_ON_GPU(SumChunks);
PWMLFF_RUNS_ON_GPU(ScanChunks);
PWMLFF_RUNS_ON_GPU(AddChunks);
PWMLFF_RUNS_ON_GPU(SearchCells);

}    // namespace pwmlff
