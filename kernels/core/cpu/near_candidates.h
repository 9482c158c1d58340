// SPDX-License-Identifier: GPL-2.0-or-later

// A list within the list: those candidates that may come within the cutoff in the next steps.

#pragma once

#include "../evaluation.h"

#include <cstdint>
#include <vector>

namespace pwmlff {

/// Most candidates of a list stay beyond the cutoff for as long as it lasts, and looking at them
/// costs a program as much as its formulas do. Those within the cutoff and a margin are found once,
/// and anew when a row has moved by half of the margin. Neighbors and their order stay the same.
/// Source: dynamic pruning, Pall et al. 2020, doi:10.1063/5.0018516.
class NearCandidates {
 public:
  /// @param cutoff  beyond which no candidate counts; 0 where that is not known: all are near
  NearCandidates(double cutoff, int nspecies);

  /// The same with near candidates alone, until the next call. It is the input itself at the first
  /// call with a list, as nobody knows whether there will be another one.
  /// @throws std::bad_alloc
  const Input &of(const Input &input);

 private:
  void find(const Input &input);
  bool has_moved(const Input &input) const;

  const double cutoff, margin;
  const int nspecies;
  std::uint64_t list = 0;
  std::vector<double> x;                   // [nrows, 3] where they were found; empty before
  std::vector<int> first, candidate;       // as in Input
  std::vector<std::vector<int>> shares;    // of a thread each
  Input near;
};

}    // namespace pwmlff
