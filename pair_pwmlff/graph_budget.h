// SPDX-License-Identifier: GPL-2.0-or-later

// What models that take edges are about to do on this many ranks: said at the start of a run, and
// refused there if there is not the memory for it.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"

#include "pointers.h"

namespace pair_pwmlff {

class GraphBudget : private LAMMPS_NS::Pointers {
 public:
  using Pointers::Pointers;

  /// Before a run.
  /// @param report  whether the log gets a line
  void init(bool report)
  {
    due = true;
    reports = report;
  }

  /// At the first step of a run: nodes, edges and memory of all ranks, beside one rank that has
  /// all atoms. Evaluates parts of the edges to know the memory. Collective.
  /// @return whether there is so little memory on this host that none can be spared for gaps
  /// @throws LAMMPS_NS::LAMMPSException where a host has less memory than that
  bool look(const Ensemble &models, pwmlff::models::Neighbors &neighbors, int nthreads);

 private:
  bool due = false, reports = false;
  double held = 0.0;    // bytes that evaluations had before, which stay with this process
};

}    // namespace pair_pwmlff
