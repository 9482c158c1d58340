// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge_graph.h"

namespace pwmlff::models {
namespace {

// By which the vectors of an edge and of its reverse may differ, in cutoffs: positions of copies
// are rounded, and other copies of an atom are much farther away.
constexpr double SAME = 1e-6;

// [nnodes + 1] where the edges of each center begin, which are in the order of their centers.
std::vector<std::int64_t> first_edges(const pwmlff::Input &input)
{
  std::vector<std::int64_t> first(input.nnodes + 1, 0);
  for (std::int64_t e = 0; e < input.nedges; ++e) ++first[input.edge_index[e] + 1];
  for (std::int64_t n = 0; n < input.nnodes; ++n) first[n + 1] += first[n];
  return first;
}

double norm_squared(double x, double y, double z) { return x * x + y * y + z * z; }

}    // namespace

std::vector<std::int64_t> reverse_edges(const pwmlff::Input &input, double cutoff)
{
  const std::int64_t *const center = input.edge_index, *const neighbor = center + input.nedges;
  const std::vector<std::int64_t> first = first_edges(input);
  const double same = SAME * cutoff * SAME * cutoff;
  std::vector<std::int64_t> reverse(input.nedges, -1);
  for (std::int64_t e = 0; e < input.nedges; ++e) {
    const double *const a = input.edge_vec + 3 * e;
    for (std::int64_t f = first[neighbor[e]]; reverse[e] < 0 && f < first[neighbor[e] + 1]; ++f) {
      const double *const b = input.edge_vec + 3 * f;
      if (neighbor[f] != center[e] || norm_squared(a[0] + b[0], a[1] + b[1], a[2] + b[2]) > same)
        continue;
      reverse[e] = f;
      reverse[f] = e;
    }
  }
  return reverse;
}

std::vector<std::int64_t> edge_pairs(const pwmlff::Input &input, double cutoff)
{
  const std::vector<std::int64_t> first = first_edges(input);
  std::vector<std::int64_t> left, right, near;
  for (std::int64_t n = 0; n < input.nnodes; ++n) {
    near.clear();
    for (std::int64_t e = first[n]; e < first[n + 1]; ++e) {
      const double *const r = input.edge_vec + 3 * e;
      if (norm_squared(r[0], r[1], r[2]) < cutoff * cutoff) near.push_back(e);
    }
    for (const std::int64_t e : near)
      for (const std::int64_t f : near) {
        if (e == f) continue;
        left.push_back(e);
        right.push_back(f);
      }
  }
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}    // namespace pwmlff::models
