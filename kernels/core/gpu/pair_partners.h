// SPDX-License-Identifier: GPL-2.0-or-later

// Which entries of a list of candidates are one pair, seen from both of its atoms.
//
// A center that knows the entry of its neighbor writes a force there, and the neighbor adds up its
// own entries: no atomic additions, and the same bits in each run.

#pragma once

#include "../team.h"
#include "list.h"

#include <cstdint>

namespace pwmlff {

/// A team for each center, which looks into the lists of its neighbors of higher rows.
struct FindPartners {
  static constexpr int lanes = 32;
  static constexpr const char *name = "FindPartners";
  GpuList list;
  int ncenters, nspecies;
  /// [ncandidates] 1 + the entry of the same pair, or as it was: 0 where the neighbor is no center
  /// or has no such entry
  int *partner;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t center) const
  {
    const int *const first = list.first + center * nspecies;
    const int own = list.species[center];
    // Several candidates at a time, each by some lanes.
    const int across = team.lanes() < 8 ? team.lanes() : 8;
    for (int c = first[0] + team.lane() / across; c < first[nspecies]; c += team.lanes() / across) {
      const std::int64_t j = list.candidate[c];
      if (j <= center || j >= ncenters) continue;
      const int *const back = list.first + j * nspecies + own;
      const int end = back[1];
      int found = 0;
      PWMLFF_UNROLL_BY_4
      for (int d = back[0] + team.lane() % across; d < end; d += across)
        if (list.candidate[d] == center) found = d + 1;
      if (found == 0) continue;
      partner[c] = found;
      partner[found - 1] = c + 1;
    }
  }
};

/// What the list of candidates lets the forces of edges go by.
template <class T> struct GpuPartners {
  const int *partner;    // FindPartners; null: forces are added where they belong
  T *force;    // [ncandidates, 4] on the center of an entry, by the energy of its neighbor
};

}    // namespace pwmlff
