/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Teams on a GPU and the definition of launch_teams_cuda, for .cu files.

#ifndef PWMLFF_TEAM_CUDA_H
#define PWMLFF_TEAM_CUDA_H

#include "team.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

constexpr int WARP = 32;

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
  __device__ int rank(bool predicate, int &total) const
  {
    static_assert(N <= WARP);
    const unsigned votes = __ballot_sync(mask(), predicate) & mask();
    total = __popc(votes);
    return __popc(votes & ((1u << (threadIdx.x % WARP)) - 1u));
  }
  template <class T> __device__ T add(T *target, T value) const { return atomicAdd(target, value); }
  __device__ void raise(int *target, int value) const { atomicMax(target, value); }

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
constexpr int threads_of_block = Kernel::lanes <= WARP ? 128 : Kernel::lanes;

// Left alone, the compiler spills registers so that more threads fit a multiprocessor (see
// benchmarks/gpu_resources.py); 640 of them hide the latency of these kernels without that.
template <class Kernel>
__global__ void __launch_bounds__(threads_of_block<Kernel>, 640 / threads_of_block<Kernel>)
    run_teams(std::int64_t nitems, std::size_t scratch, Kernel kernel)
{
  constexpr int TEAMS = threads_of_block<Kernel> / Kernel::lanes;
  extern __shared__ __align__(16) char shared[];
  const int team = threadIdx.x / Kernel::lanes;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * TEAMS + team;
  if (item >= nitems) return;
  kernel(CudaTeam<Kernel::lanes>(shared + team * scratch), item);
}

}    // namespace

template <class Kernel>
void launch_teams_cuda(std::int64_t nitems, std::size_t scratch, const Kernel &kernel, void *stream)
{
  if (nitems == 0) return;
  constexpr int THREADS = threads_of_block<Kernel>, TEAMS = THREADS / Kernel::lanes;
  constexpr std::size_t GRANTED = 48 * 1024;    // more shared memory has to be asked for
  scratch = (scratch + 15) / 16 * 16;
  const std::size_t bytes = scratch * TEAMS;
  cudaError_t status = cudaSuccess;
  if (bytes > GRANTED)
    status = cudaFuncSetAttribute(run_teams<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes));
  if (status == cudaSuccess) {
    const auto blocks = static_cast<unsigned>((nitems + TEAMS - 1) / TEAMS);
    run_teams<<<blocks, THREADS, bytes, static_cast<cudaStream_t>(stream)>>>(nitems, scratch,
                                                                             kernel);
    status = cudaGetLastError();
  }
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA refused kernel ") + Kernel::name + ": " +
                             cudaGetErrorString(status));
}

}    // namespace pwmlff

#endif
