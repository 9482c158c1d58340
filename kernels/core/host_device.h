// SPDX-License-Identifier: GPL-2.0-or-later

// Functions that are compiled for CPU and GPU.

#pragma once

#ifdef __CUDACC__
#define PWMLFF_HOST_DEVICE __host__ __device__
#define PWMLFF_UNROLL_BY_4 _Pragma("unroll 4")
#define PWMLFF_UNROLL_BY_8 _Pragma("unroll 8")
#define PWMLFF_UNROLL_ALL _Pragma("unroll")
#define PWMLFF_NO_UNROLL _Pragma("unroll 1")
#else
#define PWMLFF_HOST_DEVICE
#define PWMLFF_UNROLL_BY_4
#define PWMLFF_UNROLL_BY_8
#define PWMLFF_UNROLL_ALL _Pragma("GCC unroll 16")
#define PWMLFF_NO_UNROLL
#endif

/// A function compiled for several instruction sets: always inlined, or the linker could take
/// the copy of one of them for all.
#define PWMLFF_FORMULA PWMLFF_HOST_DEVICE inline __attribute__((always_inline))
