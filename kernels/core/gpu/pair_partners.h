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

  /// Leave the force of an edge on its neighbor at the entry that the neighbor has of it, or add it
  /// to that row where there is none.
  /// @param entry  of the edge
  /// @param f      [3] rounded as it is left, so that the two forces cancel
  /// @param sum    [nrows, 3]
  template <class Team>
  PWMLFF_HOST_DEVICE void leave(const Team &team, std::int64_t entry, std::int64_t neighbor,
                                double *f, double *sum) const
  {
    const std::int64_t other = partner ? partner[entry] - 1 : -1;
    if (other < 0) {
      for (int c = 0; c < 3; ++c) team.add(sum + 3 * neighbor + c, f[c]);
      return;
    }
    const T left[4] = {static_cast<T>(f[0]), static_cast<T>(f[1]), static_cast<T>(f[2]), T(0)};
    store_together<4>(left, force + 4 * other);
    for (int c = 0; c < 3; ++c) f[c] = left[c];
  }
};

/// What edges have left at the entries of each center, added up.
/// @tparam Chunk  with all centers: order, candidate, edges(item) and index(item, edge)
template <class T, class Chunk> struct GatherForces {
  static constexpr int lanes = 32;
  static constexpr const char *name = "GatherForces";
  Chunk chunk;
  GpuPartners<T> partners;
  double *force;    // [nrows, 3] added to

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int count = chunk.edges(item);
    double sum[3] = {0.0, 0.0, 0.0};
    for (int k = team.lane(); k < count; k += team.lanes()) {
      const std::int64_t entry = chunk.candidate[chunk.index(item, k)];
      if (partners.partner[entry] == 0) continue;
      T left[4];
      load_together<4>(partners.force + 4 * entry, left);
      for (int c = 0; c < 3; ++c) sum[c] += left[c];
    }
    for (int c = 0; c < 3; ++c) sum[c] = team.sum(sum[c]);
    if (team.lane() != 0) return;
    double *const own = force + 3 * static_cast<std::int64_t>(chunk.order[item]);
    for (int c = 0; c < 3; ++c) own[c] += sum[c];
  }
};

}    // namespace pwmlff
