// SPDX-License-Identifier: GPL-2.0-or-later

#include "move_rows.h"

#include "../team_cuda.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(MoveRows<double>);
PWMLFF_RUNS_ON_GPU(MoveRows<float>);

}    // namespace pwmlff
