// SPDX-License-Identifier: GPL-2.0-or-later

// Between the NEP engine and its code that is compiled once per instruction set.

#pragma once

#include "../../cpu/blocks.h"
#include "../network.h"

#include <vector>

namespace pwmlff {

/// Centers that go through the network together.
constexpr int nep_block = 2;
/// The most functions of the angular part.
constexpr int nep_most_functions = 20;

struct NepModel {
  const NepNetwork *network;
  const std::vector<bool> *present;    // [nspecies]
  bool single;                         // all but positions and sums over atoms in float32
};

#define PWMLFF_DECLARE_BACKEND(isa)                      \
  namespace isa {                                        \
  BlockBackend *make_nep_backend(const NepModel &model); \
  }
PWMLFF_DECLARE_BACKEND(baseline)
PWMLFF_DECLARE_BACKEND(avx2)
PWMLFF_DECLARE_BACKEND(avx512)
#undef PWMLFF_DECLARE_BACKEND

}    // namespace pwmlff
