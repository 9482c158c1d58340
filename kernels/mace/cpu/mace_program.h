// SPDX-License-Identifier: GPL-2.0-or-later

// Between the MACE engine and its code that is compiled once per instruction set.

#pragma once

#include "../../cpu/program.h"
#include "../plan.h"

namespace pwmlff {

/// Centers of one species that go through the matrices together.
constexpr int MACE_BLOCK = 4;

/// Precision: float64 without tables, float64, or float32.
enum class MacePrecision { exact, tables, single };

#define PWMLFF_DECLARE_PROGRAM(isa)                                          \
  namespace isa {                                                            \
  Program *make_mace_program(const MacePlan &plan, MacePrecision precision); \
  }
PWMLFF_DECLARE_PROGRAM(baseline)
PWMLFF_DECLARE_PROGRAM(avx2)
PWMLFF_DECLARE_PROGRAM(avx512)
#undef PWMLFF_DECLARE_PROGRAM

}    // namespace pwmlff
