// SPDX-License-Identifier: GPL-2.0-or-later

#include "sum_rows.h"

#include "../team_cuda.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(SumRows);

}    // namespace pwmlff
