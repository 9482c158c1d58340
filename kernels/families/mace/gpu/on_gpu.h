// SPDX-License-Identifier: GPL-2.0-or-later

// The kernels that a GPU can be asked to run, for .cu files.

#pragma once

#include "../../../core/team_cuda.h"
#include "kernels.h"

#define PWMLFF_MACE_ON_GPU(T)                   \
  PWMLFF_RUNS_ON_GPU(MaceFindEdges<T>);         \
  PWMLFF_RUNS_ON_GPU(MaceShortEdges<T>);        \
  PWMLFF_RUNS_ON_GPU(MaceMix<T>);               \
  PWMLFF_RUNS_ON_GPU(MaceContract<T>);          \
  PWMLFF_RUNS_ON_GPU(MaceReadout<T>);           \
  PWMLFF_RUNS_ON_GPU(MaceCopyRows<T>);          \
  PWMLFF_RUNS_ON_GPU(MaceAddRows<T>);           \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 0>);       \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 0, true>); \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 1>);       \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 1, true>); \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 2>);       \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 2, true>); \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 4>);       \
  PWMLFF_RUNS_ON_GPU(MaceEdgeSums<T, 4, true>); \
  PWMLFF_RUNS_ON_GPU(MaceEdgeGradients<T, 0>);  \
  PWMLFF_RUNS_ON_GPU(MaceEdgeGradients<T, 1>);  \
  PWMLFF_RUNS_ON_GPU(MaceEdgeGradients<T, 2>);  \
  PWMLFF_RUNS_ON_GPU(MaceEdgeGradients<T, 4>)
