// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../../../core/team_cuda.h"
#include "kernels.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(FindEdges<float>);
PWMLFF_RUNS_ON_GPU(FindEdges<double>);
PWMLFF_RUNS_ON_GPU(EdgeMoments<float>);
PWMLFF_RUNS_ON_GPU(EdgeMoments<double>);
PWMLFF_RUNS_ON_GPU(Fit<float, 1>);
PWMLFF_RUNS_ON_GPU(Fit<double, 1>);
PWMLFF_RUNS_ON_GPU(Fit<float, 8>);
PWMLFF_RUNS_ON_GPU(Fit<double, 4>);
PWMLFF_RUNS_ON_GPU(Differentiate<float>);
PWMLFF_RUNS_ON_GPU(Differentiate<double>);
PWMLFF_RUNS_ON_GPU(Forces<float>);
PWMLFF_RUNS_ON_GPU(Forces<double>);
PWMLFF_RUNS_ON_GPU(GatherForces<float, GpuChunk<float>>);
PWMLFF_RUNS_ON_GPU(GatherForces<double, GpuChunk<double>>);

}    // namespace pwmlff
