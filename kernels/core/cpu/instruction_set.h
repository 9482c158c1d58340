// SPDX-License-Identifier: GPL-2.0-or-later

// Which of the codes compiled for several processors runs on this one.

#pragma once

#include "../export.h"

namespace pwmlff {

/// From the least to the most capable; each is the namespace of its code.
enum class InstructionSet { baseline, avx2, avx512 };

/// The most capable one that this processor runs, or what the environment variable PWMLFF_CPU asks
/// for.
/// @throws std::runtime_error PWMLFF_CPU is none of those that this processor runs; the text lists
///        them
InstructionSet choose_instruction_set();

/// Its name: "baseline", "avx2" or "avx512".
PWMLFF_KERNELS_API const char *instruction_set_name();

/// A call of a function that each instruction set has: that of the one in use.
#ifdef __x86_64__
#define PWMLFF_IN_USE(...)                                                  \
  (choose_instruction_set() == InstructionSet::avx512 ? avx512::__VA_ARGS__ \
   : choose_instruction_set() == InstructionSet::avx2 ? avx2::__VA_ARGS__   \
                                                      : baseline::__VA_ARGS__)
#else
#define PWMLFF_IN_USE(...) (baseline::__VA_ARGS__)
#endif

}    // namespace pwmlff
