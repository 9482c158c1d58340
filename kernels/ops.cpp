// SPDX-License-Identifier: GPL-2.0-or-later

// Everything that libpwmlff_kernels shows to TorchScript and Python: torch.ops.pwmlff and
// torch.classes.pwmlff, and the names that older model files call.

#include "compat/calc_ops.h"
#include "dp/binding.h"
#include "edge/edge.h"
#include "training/binding.h"

#include <torch/library.h>

TORCH_LIBRARY(pwmlff, m)
{
  pwmlff::register_dp_engine(m);
  pwmlff::register_edge_ops(m);
  pwmlff::register_training(m);
}

TORCH_LIBRARY_FRAGMENT(CalcOps_cpu, m) { pwmlff::register_calc_ops(m); }

TORCH_LIBRARY_FRAGMENT(CalcOps_cuda, m) { pwmlff::register_calc_ops(m); }
