// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run.

#include "../../../core/team_cuda.h"
#include "kernels.h"

namespace pwmlff {

PWMLFF_RUNS_ON_GPU(NepFindEdges<float>);
PWMLFF_RUNS_ON_GPU(NepFindEdges<double>);
PWMLFF_RUNS_ON_GPU(NepEnergies<float>);
PWMLFF_RUNS_ON_GPU(NepEnergies<double>);
PWMLFF_RUNS_ON_GPU(NepEnergies<float, NepWay::forth>);
PWMLFF_RUNS_ON_GPU(NepEnergies<double, NepWay::forth>);
PWMLFF_RUNS_ON_GPU(NepEnergies<float, NepWay::back>);
PWMLFF_RUNS_ON_GPU(NepEnergies<double, NepWay::back>);
PWMLFF_RUNS_ON_GPU(NepEnergies<float, NepWay::back_of_charge>);
PWMLFF_RUNS_ON_GPU(NepEnergies<double, NepWay::back_of_charge>);
PWMLFF_RUNS_ON_GPU(NepForces<float>);
PWMLFF_RUNS_ON_GPU(NepForces<double>);
PWMLFF_RUNS_ON_GPU(GatherForces<float, NepGpuChunk<float>>);
PWMLFF_RUNS_ON_GPU(GatherForces<double, NepGpuChunk<double>>);
PWMLFF_RUNS_ON_GPU(NepBorn<float>);
PWMLFF_RUNS_ON_GPU(NepBorn<double>);
PWMLFF_RUNS_ON_GPU(NepRealSpace);

}    // namespace pwmlff
