// SPDX-License-Identifier: GPL-2.0-or-later

// Which of the codes compiled for several processors runs on this one.

#pragma once

#include "../../common/export.h"
#include "backend.h"

namespace pwmlff {

struct DPInstructionSet {
  const char *name;
  DPBackend *(*make_backend)(const DPModel &);
  bool (*supported)();    // by processor and system
};

/// The most capable one that this processor runs, or what the environment variable PWMLFF_CPU asks
/// for.
/// @throws std::runtime_error PWMLFF_CPU is none of those that this processor runs; the text lists
///        them
const DPInstructionSet &choose_instruction_set();

/// Its name: "baseline", "avx2" or "avx512".
PWMLFF_KERNELS_API const char *dp_instruction_set();

}    // namespace pwmlff
