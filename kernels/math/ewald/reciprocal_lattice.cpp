// SPDX-License-Identifier: GPL-2.0-or-later

#include "reciprocal_lattice.h"

#include <algorithm>
#include <cstdlib>

namespace pwmlff {

ReciprocalLattice::ReciprocalLattice(double alpha, double coulomb, double largest)
{
  box_.quarter = 0.25 / (alpha * alpha);
  box_.coulomb = coulomb;
  box_.largest = largest * alpha;
}

ReciprocalLattice::~ReciprocalLattice() = default;

bool ReciprocalLattice::set(const double *cell)
{
  if (ngroups_ > 0 && std::equal(cell, cell + 9, edges)) return false;
  std::copy_n(cell, 9, edges);
  invert();
  const double square = box_.largest * box_.largest;
  groups.clear();
  npairs_ = 0;
  for (int n1 = 0; n1 <= range[0]; ++n1)
    for (int n2 = n1 > 0 ? -range[1] : 0; n2 <= range[1]; ++n2) {
      int most = -1;
      for (int n3 = -range[2]; n3 <= range[2]; ++n3) {
        double k[3];
        const double k2 = box_.vector(n1, n2, n3, k);
        if (k2 < square && k2 > 0.0) most = std::max(most, std::abs(n3));
      }
      if (most < 0) continue;
      groups.push_back({n1, n2, most, npairs_});
      npairs_ += most + 1;
    }
  ngroups_ = static_cast<int>(groups.size());
  group_at = groups.data();
  return true;
}

void ReciprocalLattice::weigh()
{
  weights_.resize(2 * static_cast<std::size_t>(npairs_));
  for (const auto &[n1, n2, most, first] : groups)
    for (int n3 = 0; n3 <= most; ++n3)
      box_.weigh(n1, n2, n3, &weights_[2 * static_cast<std::size_t>(first + n3)]);
  weight_at = weights_.data();
}

void ReciprocalLattice::invert()
{
  const double *const a = edges, *const b = edges + 3, *const c = edges + 6;
  const auto cross = [](const double *u, const double *v, double *to) {
    to[0] = u[1] * v[2] - u[2] * v[1];
    to[1] = u[2] * v[0] - u[0] * v[2];
    to[2] = u[0] * v[1] - u[1] * v[0];
  };
  constexpr double two_pi = 2.0 * std::numbers::pi;
  cross(b, c, box_.axis);
  cross(c, a, box_.axis + 3);
  cross(a, b, box_.axis + 6);
  const double signed_volume = a[0] * box_.axis[0] + a[1] * box_.axis[1] + a[2] * box_.axis[2];
  box_.volume = std::abs(signed_volume);
  for (double &component : box_.axis) component *= two_pi / signed_volume;
  for (int d = 0; d < 3; ++d) {
    const double *const edge = edges + 3 * d;
    range[d] = static_cast<int>(
        box_.largest * std::sqrt(edge[0] * edge[0] + edge[1] * edge[1] + edge[2] * edge[2]) /
        two_pi);
  }
}

}    // namespace pwmlff
