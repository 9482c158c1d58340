// SPDX-License-Identifier: GPL-2.0-or-later

// Between the MACE engine and its code that is compiled once per instruction set.

#pragma once

#include "../../../core/cpu/program.h"
#include "../../../core/precision.h"
#include "../plan.h"

namespace pwmlff {

/// Centers of one species that go through the matrices together.
constexpr int MACE_BLOCK = 4;

#define PWMLFF_DECLARE_PROGRAM(isa)                                      \
  namespace isa {                                                        \
  Program *make_mace_program(const MacePlan &plan, Precision precision); \
  }
PWMLFF_DECLARE_PROGRAM(baseline)
PWMLFF_DECLARE_PROGRAM(avx2)
PWMLFF_DECLARE_PROGRAM(avx512)
#undef PWMLFF_DECLARE_PROGRAM

}    // namespace pwmlff
