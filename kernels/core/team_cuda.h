// SPDX-License-Identifier: GPL-2.0-or-later

// Teams on a GPU and the definition of launch_teams_cuda, for .cu files. Each of them names the
// kernels that a GPU can be asked to run.

#pragma once

#include "team.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

constexpr int WARP = BlockShape::WARP;

template <int N> class CudaTeam {
  static_assert((N & (N - 1)) == 0, "teams are powers of two");

 public:
  __device__ explicit CudaTeam(void *scratch) : scratch_(scratch) {}

  __device__ int lane() const { return threadIdx.x % N; }
  __device__ int lanes() const { return N; }
  template <class T> __device__ T *scratch() const { return static_cast<T *>(scratch_); }
  __device__ void sync() const
  {
    if constexpr (N > WARP) __syncthreads();
    else if constexpr (N > 1) __syncwarp(mask());
  }
  template <class T> __device__ T sum(T value) const
  {
    static_assert(N <= WARP);
    for (int offset = N / 2; offset > 0; offset /= 2)
      value += __shfl_xor_sync(mask(), value, offset, N);
    return value;
  }
  template <class T> __device__ T exchange(T value, int offset) const
  {
    static_assert(N <= WARP);
    return __shfl_xor_sync(mask(), value, offset, N);
  }
  template <class T> __device__ T sum_below(T value, T &total) const
  {
    static_assert(N <= WARP);
    T below = T(0);
    total = value;
    for (int offset = 1; offset < N; offset *= 2) {    // sums of ever larger groups of lanes
      const T other = __shfl_xor_sync(mask(), total, offset, N);
      if (lane() & offset) below += other;
      total += other;
    }
    return below;
  }
  __device__ int count_below(bool predicate, int &total) const
  {
    static_assert(N <= WARP);
    const unsigned votes = __ballot_sync(mask(), predicate) & mask();
    total = __popc(votes);
    return __popc(votes & ((1u << (threadIdx.x % WARP)) - 1u));
  }
  template <class T> __device__ T add(T *target, T value) const { return atomicAdd(target, value); }
  __device__ std::int64_t add(std::int64_t *target, std::int64_t value) const
  {
    return static_cast<std::int64_t>(atomicAdd(reinterpret_cast<unsigned long long *>(target),
                                               static_cast<unsigned long long>(value)));
  }
  __device__ void raise(int *target, int value) const { atomicMax(target, value); }
  __device__ void raise(std::int64_t *target, std::int64_t value) const
  {
    atomicMax(reinterpret_cast<long long *>(target), static_cast<long long>(value));
  }

 private:
  // The lanes of this team within its warp.
  __device__ unsigned mask() const
  {
    if constexpr (N >= WARP) return 0xffffffffu;
    else return ((1u << N) - 1u) << (threadIdx.x % WARP / N * N);
  }

  void *scratch_;
};

template <class Kernel>
__global__ void __launch_bounds__(BlockShape::most_threads(Kernel::lanes),
                                  BlockShape::resident<Kernel>() /
                                      BlockShape::most_threads(Kernel::lanes))
    run_teams(std::int64_t nitems, std::size_t scratch, const char *name, const char **running,
              Kernel kernel)
{
  extern __shared__ __align__(16) char shared[];
  if (running && blockIdx.x == 0 && threadIdx.x == 0) {
    *static_cast<const char *volatile *>(running) = name;
    __threadfence_system();    // it is there even if this kernel ends badly
  }
  const int team = threadIdx.x / Kernel::lanes, nteams = blockDim.x / Kernel::lanes;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * nteams + team;
  if (item >= nitems) return;
  kernel(CudaTeam<Kernel::lanes>(shared + team * scratch), item);
}

}    // namespace

template <class Kernel>
void launch_teams_cuda(std::int64_t nitems, std::size_t scratch, const Kernel &kernel, void *stream,
                       const char **running)
{
  if (nitems == 0) return;
  const BlockShape shape = BlockShape::make(Kernel::lanes, scratch);
  const int nteams = shape.threads / Kernel::lanes;
  cudaGetLastError();    // what went wrong before has been reported, and is not of this launch
  cudaError_t status = cudaSuccess;
  if (shape.scratch > BlockShape::GRANTED)
    status = cudaFuncSetAttribute(run_teams<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shape.scratch));
  if (status == cudaSuccess) {
    const auto blocks = static_cast<unsigned>((nitems + nteams - 1) / nteams);
    run_teams<<<blocks, shape.threads, shape.scratch, static_cast<cudaStream_t>(stream)>>>(
        nitems, BlockShape::padded(scratch), Kernel::name, running, kernel);
    status = cudaGetLastError();
  }
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA did not start kernel ") + Kernel::name + ": " +
                             cudaGetErrorString(status));
}

#define PWMLFF_RUNS_ON_GPU(...)                                                           \
  template void launch_teams_cuda(std::int64_t, std::size_t, const __VA_ARGS__ &, void *, \
                                  const char **)

}    // namespace pwmlff
