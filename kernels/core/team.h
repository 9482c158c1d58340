// SPDX-License-Identifier: GPL-2.0-or-later

// Kernels in which several threads work on one item, from one source for CPU and GPU.
//
// A team kernel is a struct of plain pointers and numbers with
//
//   static constexpr int lanes;           threads of a team: a power of two up to 32, or a block
//   static constexpr const char *name;    for messages
//   template <class Team>
//   PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const;
//
// A team offers
//
//   lane(), lanes()     who this thread is; work is shared as for (k = lane(); k < n; k += lanes())
//   scratch<T>()        memory that the team shares, of the size that the launch asked for
//   sync()              what lanes wrote before is seen by all after; every lane has to call it
//   sum(v)              of all lanes, on all lanes; teams of up to 32
//   exchange(v, n)      what lane ^ n has; n a power of two below lanes(); teams of up to 32
//   sum_below(v, n)     of all lower lanes, and in n of all; teams of up to 32
//   count_below(p, n)   how many lower lanes have p, and in n how many of all; teams of up to 32
//   add(p, v)           *p += v where others add as well; returns what was there before
//   raise(p, v)         *p = max(*p, v) in the same sense
//
// The same code runs on the CPU with one lane, with threads for lanes, which finds what depends on
// the number of lanes or on a missing sync (HostTeam), and on a GPU (team_cuda.h).

#pragma once

#include "host_device.h"

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// Tells the compiler that a pointer, which a kernel has read from memory, leads to memory of the
/// GPU and not into scratch; without that each access checks which.
template <class T> PWMLFF_HOST_DEVICE const T *global_pointer(const T *pointer)
{
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(pointer));
#endif
  return pointer;
}

/// What a GPU loads or stores at once.
template <class T> struct alignas(16) Vector128 {
  static constexpr int size = 16 / sizeof(T);
  T value[size];
};

/// Load N values that lie side by side, 128 bits at a time on a GPU.
/// @param source  of 16 bytes alignment where N is a multiple of what 128 bits hold
template <int N, class T> PWMLFF_HOST_DEVICE void load_together(const T *source, T *target)
{
#ifdef __CUDA_ARCH__
  constexpr int size = Vector128<T>::size;
  if constexpr (N % size == 0) {
    for (int k = 0; k < N; k += size) {
      const auto vector = *reinterpret_cast<const Vector128<T> *>(source + k);
      for (int c = 0; c < size; ++c) target[k + c] = vector.value[c];
    }
  } else
#endif
    for (int k = 0; k < N; ++k) target[k] = source[k];
}

/// Store them likewise.
template <int N, class T> PWMLFF_HOST_DEVICE void store_together(const T *values, T *target)
{
#ifdef __CUDA_ARCH__
  constexpr int size = Vector128<T>::size;
  if constexpr (N % size == 0) {
    for (int k = 0; k < N; k += size) {
      Vector128<T> vector;
      for (int c = 0; c < size; ++c) vector.value[c] = values[k + c];
      *reinterpret_cast<Vector128<T> *>(target + k) = vector;
    }
  } else
#endif
    for (int k = 0; k < N; ++k) target[k] = values[k];
}

/// On the CPU: one lane, or several that are threads.
class HostTeam {
 public:
  /// What the lanes of a team share.
  struct Common {
    explicit Common(int lanes) : barrier(lanes) {}
    std::barrier<> barrier;
    double values[32];
  };

  /// One lane.
  explicit HostTeam(void *scratch) : scratch_(scratch) {}
  HostTeam(int lane, int lanes, Common &common, void *scratch) :
      lane_(lane), lanes_(lanes), common(&common), scratch_(scratch)
  {
  }

  int lane() const { return lane_; }
  int lanes() const { return lanes_; }
  template <class T> T *scratch() const { return static_cast<T *>(scratch_); }
  void sync() const
  {
    if (common) common->barrier.arrive_and_wait();
  }
  template <class T> T sum(T value) const
  {
    if (!common) return value;
    common->values[lane_] = value;
    sync();
    double total = 0.0;
    for (int k = 0; k < lanes_; ++k) total += common->values[k];
    sync();
    return static_cast<T>(total);
  }
  template <class T> T exchange(T value, int offset) const
  {
    common->values[lane_] = value;
    sync();
    const double other = common->values[lane_ ^ offset];
    sync();
    return static_cast<T>(other);
  }
  template <class T> T sum_below(T value, T &total) const
  {
    if (!common) return total = value, T(0);
    common->values[lane_] = static_cast<double>(value);
    sync();
    T below = total = T(0);
    for (int k = 0; k < lanes_; ++k) {
      if (k == lane_) below = total;
      total += static_cast<T>(common->values[k]);
    }
    sync();
    return below;
  }
  int count_below(bool predicate, int &total) const
  {
    return sum_below(static_cast<int>(predicate), total);
  }
  template <class T> T add(T *target, T value) const
  {
    if (common) return std::atomic_ref<T>(*target).fetch_add(value);
    const T before = *target;
    *target = before + value;
    return before;
  }
  template <class T> void raise(T *target, T value) const
  {
    std::atomic_ref<T> shared(*target);
    T before = shared.load();
    while (before < value && !shared.compare_exchange_weak(before, value)) {
    }
  }

 private:
  int lane_ = 0, lanes_ = 1;
  Common *common = nullptr;    // of several lanes
  void *scratch_;
};

/// Threads of a block on a GPU: teams up to a warp share one, the more of them the less scratch
/// they need.
struct BlockShape {
  int threads;
  std::size_t scratch;    // bytes of all teams

  static constexpr int WARP = 32;
  static constexpr std::size_t GRANTED = 48 * 1024;    // what a block gets without asking

  /// @param lanes of a team @param team_bytes bytes of scratch that a team asks for
  static constexpr BlockShape make(int lanes, std::size_t team_bytes)
  {
    const std::size_t each = padded(team_bytes);
    int threads = most_threads(lanes);
    while (threads > WARP && threads > lanes && threads / lanes * each > GRANTED) threads /= 2;
    return {threads, threads / lanes * each};
  }
  /// Threads that are to be on a multiprocessor at the same time. Left alone, the compiler spills
  /// registers so that there are more (see benchmarks/gpu_resources.py); 640 hide the latency of
  /// most kernels without that. A kernel of many registers has `resident` of its own.
  template <class Kernel> static constexpr int resident()
  {
    if constexpr (requires { Kernel::resident; }) return Kernel::resident;
    else return 640;
  }
  static constexpr int most_threads(int lanes) { return lanes <= WARP ? 4 * WARP : lanes; }
  /// Vectors of 16 bytes, in an odd number: what the teams of a warp read at the same time lies in
  /// different banks.
  static constexpr std::size_t padded(std::size_t bytes)
  {
    return bytes > 0 ? ((bytes + 15) / 16 | 1) * 16 : 0;
  }
};

/// Run a team kernel for item = 0 .. nitems-1 on the current CUDA device, on a stream
/// (cudaStream_t) and without waiting for it.
/// @param scratch bytes of scratch of a team
/// @param running where the GPU writes Kernel::name when it begins, in host memory that it sees, or
///        null
/// @throws std::runtime_error where the launch is refused
template <class Kernel>
void launch_teams_cuda(std::int64_t nitems, std::size_t scratch, const Kernel &kernel, void *stream,
                       const char **running);

}    // namespace pwmlff
