// SPDX-License-Identifier: GPL-2.0-or-later

// Candidates to edges within the cutoff: a lane for each candidate.

#pragma once

#include "types.h"

#include "../../../core/team.h"

#include <cmath>
#include <cstdint>

namespace pwmlff {

template <class T> struct FindEdges {
  static constexpr int lanes = 32;
  static constexpr const char *name = "FindEdges";
  GpuModel<T> model;
  GpuList list;
  GpuChunk<T> chunk;
  std::int64_t *overflow;    // key of the Excess of the first center

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int i = chunk.order[item];
    const double *const xi = list.x + 3 * static_cast<std::int64_t>(i);
    int begin = 0;
    for (int b = 0; b < model.nspecies; ++b) {
      const GpuPair<T> &pair = model.pairs[list.species[i] * model.nspecies + b];
      const int *const first = list.first + static_cast<std::int64_t>(i) * model.nspecies + b;
      const int ncandidates = pair.present ? first[1] - first[0] : 0;
      double sum[4] = {0.0, 0.0, 0.0, 0.0};
      int n = 0;
      for (int k0 = 0; k0 < ncandidates; k0 += team.lanes()) {
        const int k = k0 + team.lane();
        double d[3] = {0.0, 0.0, 0.0}, rsq = model.cutsq;
        if (k < ncandidates) {
          const std::int64_t j = list.candidate[first[0] + k];
          const double *const xj = list.x + 3 * j;
          for (int c = 0; c < 3; ++c) d[c] = xj[c] - xi[c];
          rsq = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
        }
        int found;
        const int before = team.count_below(rsq < model.cutsq, found);
        if (rsq < model.cutsq)
          write(item * chunk.stride + begin + n + before, first[0] + k, d, sqrt(rsq), pair.geometry,
                sum);
        n += found;
      }
      for (int c = 0; c < 4; ++c) sum[c] = team.sum(sum[c]);
      if (team.lane() == 0) {
        const std::int64_t sublist = item * model.nspecies + b;
        chunk.count[sublist] = n;
        for (int c = 0; c < 4; ++c)
          chunk.slots[4 * sublist + c] = sum[c] + pair.sel * pair.geometry.shift[c];
        if (n > pair.sel) team.raise(overflow, key_of({i, b, n, pair.sel}));
      }
      begin += n;
    }
  }

 private:
  PWMLFF_HOST_DEVICE void write(std::int64_t e, int candidate, const double *d, double r,
                                const PairGeometry &pair, double *sum) const
  {
    const auto radial = radial_terms(r, pair);
    const double environment[4] = {radial.s * pair.scale[0], radial.q * d[0] * pair.scale[1],
                                   radial.q * d[1] * pair.scale[2],
                                   radial.q * d[2] * pair.scale[3]};
    T shifted[4];
    for (int c = 0; c < 4; ++c) {
      sum[c] += environment[c];
      shifted[c] = static_cast<T>(environment[c] + pair.shift[c]);
    }
    store_together<4>(shifted, chunk.environment + 4 * e);
    chunk.candidate[e] = candidate;
    if (!(r >= pair.lowest)) {
      chunk.row[e] = -1;
      chunk.place[e] = T(0);
      return;
    }
    const PairGeometry::Segment &segment = pair.segment[r >= pair.split];
    const double y = (r - segment.start) * segment.inv_spacing;
    const int interval = static_cast<int>(y < segment.last ? y : segment.last);
    chunk.place[e] = static_cast<T>(y - interval);
    chunk.row[e] = interval + static_cast<int>(segment.first);
  }
};

}    // namespace pwmlff
