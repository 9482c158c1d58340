// SPDX-License-Identifier: GPL-2.0-or-later

// The definition of launch_cuda, for .cu files. Each instantiates it for its kernels.

#ifndef PWMLFF_LAUNCH_CUDA_H
#define PWMLFF_LAUNCH_CUDA_H

#include "launch.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

template <typename Kernel> __global__ void run_items(std::int64_t nitems, Kernel kernel)
{
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       item < nitems; item += stride)
    kernel(item);
}

}    // namespace

template <typename Kernel> void launch_cuda(std::int64_t nitems, const Kernel &kernel, void *stream)
{
  if (nitems == 0) return;
  constexpr std::int64_t THREADS = 256, MOST_BLOCKS = 1 << 20;
  const auto blocks = std::min((nitems + THREADS - 1) / THREADS, MOST_BLOCKS);
  cudaGetLastError();    // what went wrong before has been reported, and is not of this launch
  run_items<<<static_cast<unsigned>(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
      nitems, kernel);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA did not start a kernel: ") +
                             cudaGetErrorString(status));
}

}    // namespace pwmlff

#endif
