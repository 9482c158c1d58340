// SPDX-License-Identifier: GPL-2.0-or-later

// Which of two engines for a model is faster on what a rank has: its file's own code on a GPU or
// the fused engine on the CPU, where device auto leaves that open. All ranks come to one answer.

#pragma once

#include "models/model.h"
#include "models/neighbors.h"

#include <mpi.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// The atoms of a rank and its part of the box, without what is around.
struct Share {
  std::array<std::array<double, 3>, 3> edges;    // of that part
  std::array<bool, 3> repeats;                   // whether there is more beyond, along each edge
  std::vector<double> x;                         // [n, 3]
  std::vector<int> species;                      // [n]

  int natoms() const { return static_cast<int>(species.size()); }

  /// Leave the middle half of the atoms along the direction in which they spread most, until there
  /// are no more than that many; more is then taken to be beyond.
  void reduce(int most);
};

/// A share surrounded by images of itself, for the atoms of other ranks and of the periodic box.
/// It has as many atoms and neighbors as the rank in a run, and needs no other rank.
struct Piece {
  /// @param reach  of candidates: the cutoff and the skin
  /// @param shell  how far beyond the share edges start, for message passing that evaluates those
  ///               of ghosts; 0: what images have comes from the atoms that they are of
  Piece(const Share &share, int nspecies, double reach, double shell);
  Piece(const Piece &) = delete;
  Piece &operator=(const Piece &) = delete;

  std::vector<double> x;    // [nrows, 3]
  pwmlff::models::Neighbors neighbors;
};

/// A step of one engine.
struct StepTime {
  double seconds = 0.0;    // of the slowest rank
  std::string failure;     // of the first rank where it fails; empty where all can
};

/// What a trial finds; the same on all ranks.
struct DeviceTrial {
  StepTime gpu, cpu;
  int natoms = 0;    // of the piece of a rank, at most

  /// The CPU where it is faster or the GPU fails, the GPU where the CPU fails.
  bool takes_cpu() const
  {
    return cpu.failure.empty() && (!gpu.failure.empty() || cpu.seconds < gpu.seconds);
  }
};

/// Evaluate a model by its engine on the GPU and by one on the CPU, one after the other, on all
/// ranks at once, as they share GPUs and cores in the run. Ranks wait for each other between
/// engines alone. Collective.
/// @param share  of this rank; of many atoms, a part is taken
/// @param skin   of LAMMPS's neighbors
/// @param clock  gives seconds
DeviceTrial try_devices(MPI_Comm comm, pwmlff::models::Model &gpu, pwmlff::models::Model &cpu,
                        Share share, double skin, int nthreads,
                        const std::function<double()> &clock = MPI_Wtime);

}    // namespace pair_pwmlff
