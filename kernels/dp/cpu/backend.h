// SPDX-License-Identifier: GPL-2.0-or-later

// Between the engine and its code that is compiled once per instruction set.

#pragma once

#include "../../cpu/blocks.h"
#include "../network.h"
#include "../spline.h"

#include <vector>

namespace pwmlff {

struct DPModel {
  const DPNetwork *network;
  const std::vector<SplineTable> *tables;    // [nspecies*nspecies]; empty: evaluate the nets
  const std::vector<bool> *present;          // [nspecies]
  bool single;                               // tables, moments and large layers in float32
};

#define PWMLFF_DECLARE_BACKEND(isa)                 \
  namespace isa {                                   \
  BlockBackend *make_backend(const DPModel &model); \
  }
PWMLFF_DECLARE_BACKEND(baseline)
PWMLFF_DECLARE_BACKEND(avx2)
PWMLFF_DECLARE_BACKEND(avx512)
#undef PWMLFF_DECLARE_BACKEND

}    // namespace pwmlff
