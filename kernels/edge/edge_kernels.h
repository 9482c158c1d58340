// SPDX-License-Identifier: GPL-2.0-or-later

// Between edges and atoms. An edge e leads from center i = edge_index[0][e] to neighbor
// j = edge_index[1][e].

#ifndef PWMLFF_EDGE_KERNELS_H
#define PWMLFF_EDGE_KERNELS_H

#include "../common/launch.h"

namespace pwmlff {

/// out[i] += center * values[e] and out[j] += neighbor * values[e]; an item is one number of an
/// edge.
template <typename T> struct EdgeScatter {
  const T *values;                   // [nedges, width]
  const std::int64_t *edge_index;    // [2, nedges]
  std::int64_t nedges, width;
  T center, neighbor;
  T *out;    // [nall, width]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const std::int64_t edge = item / width, k = item % width;
    if (center != T(0)) add_to(&out[edge_index[edge] * width + k], center * values[item]);
    if (neighbor != T(0))
      add_to(&out[edge_index[nedges + edge] * width + k], neighbor * values[item]);
  }
};

/// out[e] = center * atoms[i] + neighbor * atoms[j]: the transpose of EdgeScatter.
template <typename T> struct EdgeGather {
  const T *atoms;                    // [nall, width]
  const std::int64_t *edge_index;    // [2, nedges]
  std::int64_t nedges, width;
  T center, neighbor;
  T *out;    // [nedges, width]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const std::int64_t edge = item / width, k = item % width;
    out[item] = center * atoms[edge_index[edge] * width + k] +
                neighbor * atoms[edge_index[nedges + edge] * width + k];
  }
};

}    // namespace pwmlff

#endif
