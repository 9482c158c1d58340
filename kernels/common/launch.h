// SPDX-License-Identifier: GPL-2.0-or-later

// Run the same per-item function on the CPU and on a GPU.
//
// A kernel is a struct of plain pointers with  void operator()(std::int64_t item) const  marked
// PWMLFF_HOST_DEVICE. Its header is included by one .cpp file, which launches it on the CPU, and by
// one .cu file, which launches it on a GPU. Nothing outside this folder asks which compiler it is.

#ifndef PWMLFF_LAUNCH_H
#define PWMLFF_LAUNCH_H

#include <cstdint>

#ifdef __CUDACC__
#define PWMLFF_HOST_DEVICE __host__ __device__
#define PWMLFF_UNROLL_BY_4 _Pragma("unroll 4")
#else
#define PWMLFF_HOST_DEVICE
#define PWMLFF_UNROLL_BY_4
#endif

/// A function compiled for several instruction sets: always inlined, or the linker could take
/// the copy of one of them for all.
#define PWMLFF_FORMULA PWMLFF_HOST_DEVICE inline __attribute__((always_inline))

namespace pwmlff {

/// sum += value, safe where several items of a launch share a sum. On the CPU items run in order.
template <typename T> PWMLFF_HOST_DEVICE inline void add_to(T *sum, T value)
{
#ifdef __CUDA_ARCH__
  atomicAdd(sum, value);
#else
  *sum += value;
#endif
}

/// Call kernel(item) for item = 0 .. nitems-1, in order.
template <typename Kernel> void launch_cpu(std::int64_t nitems, const Kernel &kernel)
{
  for (std::int64_t item = 0; item < nitems; ++item) kernel(item);
}

/// The same on the current device, on a stream (cudaStream_t) and without waiting for it.
/// @throws std::runtime_error where the launch is refused, or where there is no CUDA in this build
template <typename Kernel>
void launch_cuda(std::int64_t nitems, const Kernel &kernel, void *stream);

}    // namespace pwmlff

#endif
