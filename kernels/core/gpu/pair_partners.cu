// SPDX-License-Identifier: GPL-2.0-or-later

#include "pair_partners.h"

#include "../team_cuda.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(FindPartners);

}    // namespace pwmlff
