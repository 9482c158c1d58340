/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Kernels in which several threads work on one item, from one source for CPU and GPU.
//
// A team kernel is a struct of plain pointers and numbers with
//
//   static constexpr int lanes;           threads of a team: a power of two up to 32, or a block
//   static constexpr const char *name;    for messages
//   template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const;
//
// A team offers
//
//   lane(), lanes()     who this thread is; work is shared as for (k = lane(); k < n; k += lanes())
//   scratch<T>()        memory that the team shares, of the size that the launch asked for
//   sync()              what lanes wrote before is seen by all after; every lane has to come
//   sum(v)              of all lanes, on all lanes; teams of up to 32
//   rank(p, n)          how many lower lanes have p, and in n how many of all; teams of up to 32
//   add(p, v)           *p += v where others add as well; returns what was there before
//   raise(p, v)         *p = max(*p, v) in the same sense
//
// The same code runs with one lane (SerialTeam), with threads for lanes (ThreadTeam, which finds
// what depends on the number of lanes or on a missing sync), and on a GPU (team_cuda.h).

#ifndef PWMLFF_TEAM_H
#define PWMLFF_TEAM_H

#include "launch.h"

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

class SerialTeam {
 public:
  explicit SerialTeam(void *scratch) : scratch_(scratch) {}

  int lane() const { return 0; }
  int lanes() const { return 1; }
  template <class T> T *scratch() const { return static_cast<T *>(scratch_); }
  void sync() const {}
  template <class T> T sum(T value) const { return value; }
  int rank(bool predicate, int &total) const
  {
    total = predicate;
    return 0;
  }
  template <class T> T add(T *target, T value) const
  {
    const T before = *target;
    *target = before + value;
    return before;
  }
  void raise(int *target, int value) const { *target = value > *target ? value : *target; }

 private:
  void *scratch_;
};

class ThreadTeam {
 public:
  /// What the lanes of a team share.
  struct Common {
    explicit Common(int lanes) : barrier(lanes) {}
    std::barrier<> barrier;
    double values[32];
    bool flags[32];
  };

  ThreadTeam(int lane, int lanes, Common &common, void *scratch) :
      lane_(lane), lanes_(lanes), common(common), scratch_(scratch)
  {
  }

  int lane() const { return lane_; }
  int lanes() const { return lanes_; }
  template <class T> T *scratch() const { return static_cast<T *>(scratch_); }
  void sync() const { common.barrier.arrive_and_wait(); }
  template <class T> T sum(T value) const
  {
    common.values[lane_] = value;
    sync();
    double total = 0.0;
    for (int k = 0; k < lanes_; ++k) total += common.values[k];
    sync();
    return static_cast<T>(total);
  }
  int rank(bool predicate, int &total) const
  {
    common.flags[lane_] = predicate;
    sync();
    int below = total = 0;
    for (int k = 0; k < lanes_; ++k) {
      if (k == lane_) below = total;
      total += common.flags[k];
    }
    sync();
    return below;
  }
  template <class T> T add(T *target, T value) const
  {
    return std::atomic_ref<T>(*target).fetch_add(value);
  }
  void raise(int *target, int value) const
  {
    std::atomic_ref<int> shared(*target);
    int before = shared.load();
    while (before < value && !shared.compare_exchange_weak(before, value)) {
    }
  }

 private:
  int lane_, lanes_;
  Common &common;
  void *scratch_;
};

/// Run a team kernel for item = 0 .. nitems-1 on the current CUDA device, on a stream (cudaStream_t)
/// and without waiting for it.
/// @param scratch bytes of scratch of a team
/// @throws std::runtime_error where the launch is refused, or where there is no CUDA in this build
template <class Kernel>
void launch_teams_cuda(std::int64_t nitems, std::size_t scratch, const Kernel &kernel,
                       void *stream);

}    // namespace pwmlff

#endif
