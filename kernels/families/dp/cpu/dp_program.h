// SPDX-License-Identifier: GPL-2.0-or-later

// Between the engine and its code that is compiled once per instruction set.

#pragma once

#include "../../../core/cpu/program.h"
#include "../network.h"
#include "../spline.h"

#include <vector>

namespace pwmlff {

/// What a program packs.
struct DPPacking {
  const DPNetwork *network;
  const std::vector<SplineTable> *tables;    // [nspecies*nspecies]; empty: evaluate the nets
  const std::vector<bool> *present;          // [nspecies]
  bool single;                               // tables, moments and large layers in float32
};

#define PWMLFF_DECLARE_PROGRAM(isa)                 \
  namespace isa {                                   \
  Program *make_dp_program(const DPPacking &model); \
  }
PWMLFF_DECLARE_PROGRAM(baseline)
PWMLFF_DECLARE_PROGRAM(avx2)
PWMLFF_DECLARE_PROGRAM(avx512)
#undef PWMLFF_DECLARE_PROGRAM

}    // namespace pwmlff
