// SPDX-License-Identifier: GPL-2.0-or-later

// Candidates to edges within the cutoffs: a lane for each candidate.

#pragma once

#include "types.h"

#include "../../../core/team.h"

#include <cmath>
#include <cstdint>

namespace pwmlff {

template <class T> struct NepFindEdges {
  static constexpr int lanes = 32;
  static constexpr const char *name = "NepFindEdges";
  NepGpuModel<T> model;
  GpuList list;
  NepGpuChunk<T> chunk;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t i = chunk.order[item];
    const double *const xi = list.x + 3 * i;
    const NepGpuPair<T> *const pairs = model.pairs + list.species[i] * model.nspecies;
    const int begin = list.first[i * model.nspecies], end = list.first[(i + 1) * model.nspecies];
    int near = 0, others = 0;
    for (int k0 = begin; k0 < end; k0 += team.lanes()) {
      const int k = k0 + team.lane();
      std::int64_t j = -1;
      int kind = 0;
      double d[3], squared = 0.0;
      bool is_near = false, is_other = false;
      if (k < end) {
        j = list.candidate[k];
        kind = list.species[j];
        for (int c = 0; c < 3; ++c) {
          d[c] = list.x[3 * j + c] - xi[c];
          squared += d[c] * d[c];
        }
        const NepGpuPair<T> &pair = pairs[kind];
        is_near = squared < pair.near;
        is_other = !is_near && squared < pair.cutoff;
      }
      int found_near, found_others;
      const int before = near + team.count_below(is_near, found_near);
      const int behind = others + team.count_below(is_other, found_others);
      if (is_near || is_other) {
        const std::int64_t e = item * chunk.stride + (is_near ? before : chunk.stride - 1 - behind);
        const T edge[4] = {static_cast<T>(d[0]), static_cast<T>(d[1]), static_cast<T>(d[2]),
                           static_cast<T>(sqrt(squared))};
        chunk.candidate[e] = k;
        chunk.kind[e] = kind;
        store_together<4>(edge, chunk.edge + 4 * e);
      }
      near += found_near;
      others += found_others;
    }
    if (team.lane() != 0) return;
    chunk.count[2 * item] = near;
    chunk.count[2 * item + 1] = others;
  }
};

}    // namespace pwmlff
