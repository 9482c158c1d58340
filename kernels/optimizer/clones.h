// SPDX-License-Identifier: GPL-2.0-or-later

// One binary for all processors of a family: the compiler makes a function with PWMLFF_CLONES once
// per instruction set and the loader picks. Nothing depends on the choice: sums are of eight lanes
// on all of them, and products are rounded before they are added (-ffp-contract=off).

#pragma once

#include <cstdint>

// Sanitizers are not ready when the loader picks. GCC tells of them by macros, Clang by features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define PWMLFF_CLONES
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PWMLFF_CLONES
#endif
#endif
#ifndef PWMLFF_CLONES
#define PWMLFF_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

namespace pwmlff {

constexpr std::int64_t LANES = 8;

// Arrays of NumPy begin at multiples of 8 bytes.
typedef double Vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

#define LOAD(p) (*reinterpret_cast<const Vector *>(p))
#define STORE(p, v) (*reinterpret_cast<Vector *>(p) = (v))
#define SUM_OF_LANES(v) \
  ((((v)[0] + (v)[4]) + ((v)[1] + (v)[5])) + (((v)[2] + (v)[6]) + ((v)[3] + (v)[7])))

}    // namespace pwmlff
