// SPDX-License-Identifier: GPL-2.0-or-later

// Between the NEP engine and its code that is compiled once per instruction set.

#pragma once

#include "../../../core/cpu/program.h"
#include "../network.h"

#include <vector>

namespace pwmlff {

/// Centers that go through the network together.
constexpr int nep_block = 2;
/// The most functions of the angular part.
constexpr int nep_most_functions = 20;

/// What a program packs.
struct NepPacking {
  const NepNetwork *network;
  const std::vector<bool> *present;    // [nspecies]
  bool single;                         // all but positions and sums over atoms in float32
};

#define PWMLFF_DECLARE_PROGRAM(isa)                   \
  namespace isa {                                     \
  Program *make_nep_program(const NepPacking &model); \
  }
PWMLFF_DECLARE_PROGRAM(baseline)
PWMLFF_DECLARE_PROGRAM(avx2)
PWMLFF_DECLARE_PROGRAM(avx512)
#undef PWMLFF_DECLARE_PROGRAM

}    // namespace pwmlff
