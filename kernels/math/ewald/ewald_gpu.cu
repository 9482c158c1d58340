// SPDX-License-Identifier: GPL-2.0-or-later

#include "ewald_kernels.h"

#include "../../core/team_cuda.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(AddSlabs);
PWMLFF_RUNS_ON_GPU(EwaldAtomVirials);
PWMLFF_RUNS_ON_GPU(EwaldCoefficients);
PWMLFF_RUNS_ON_GPU(EwaldFields);
PWMLFF_RUNS_ON_GPU(EwaldPairs);
PWMLFF_RUNS_ON_GPU(EwaldPotentials);
PWMLFF_RUNS_ON_GPU(EwaldPowers);
PWMLFF_RUNS_ON_GPU(EwaldStructure);

}    // namespace pwmlff
