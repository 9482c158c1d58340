// SPDX-License-Identifier: GPL-2.0-or-later

#include "add_scaled.h"
#include "sum_rows.h"

#include "../team_cuda.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(AddScaled);
PWMLFF_RUNS_ON_GPU(SumRows);

}    // namespace pwmlff
