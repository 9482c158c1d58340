// SPDX-License-Identifier: GPL-2.0-or-later

// Between the ACE engine and its code that is compiled once per instruction set.

#pragma once

#include "../../../core/cpu/program.h"
#include "../tables.h"

namespace pwmlff {

/// @param network  outlives the program
/// @param single   radial functions, harmonics and moments of edges in float32
#define PWMLFF_DECLARE_PROGRAM(isa)                                        \
  namespace isa {                                                          \
  Program *make_ace_program(const AceEngineNetwork &network, bool single); \
  }
PWMLFF_DECLARE_PROGRAM(baseline)
PWMLFF_DECLARE_PROGRAM(avx2)
PWMLFF_DECLARE_PROGRAM(avx512)
#undef PWMLFF_DECLARE_PROGRAM

}    // namespace pwmlff
