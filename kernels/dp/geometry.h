/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What CPU and GPU engines share about the edges of a pair of species.

#ifndef PWMLFF_DP_GEOMETRY_H
#define PWMLFF_DP_GEOMETRY_H

#include "../common/launch.h"
#include "network.h"
#include "spline.h"

#include <vector>

namespace pwmlff {

/// What the environment and the place in the table of an edge depend on, apart from r_ij.
struct PairGeometry {
  double rmin, inv_width, rmax;
  double scale[4], shift[4];    // R~ = R*scale + shift
  double lowest, split;         // of the table, as in SplineTable; lowest is infinite without one
  struct Segment {
    double start, inv_spacing, last, first;    // last interval, row of the first coefficient
  } segment[2];
};

/// @param index centre species * nspecies + neighbour species
/// @param table null where the embedding net is evaluated as it is
PairGeometry pair_geometry(const DPNetwork &network, int index, const SplineTable *table);

/// B-splines of degree N-1 on an interval to those of degree N. left is the place in the interval, 0
/// to 1, and right = 1 - left; b [N+1] starts with N values. V is T or a vector of T.
template <int N, class T, class V> PWMLFF_FORMULA void raise_degree(V left, V right, V *b)
{
  constexpr T inv = T(1) / N;
  b[N] = left * b[N - 1] * inv;
  for (int k = N - 1; k > 0; --k)
    b[k] = ((left + T(N - k)) * b[k - 1] + (right + T(k)) * b[k]) * inv;
  b[0] = right * b[0] * inv;
}

/// Weights of the five differences of spline coefficients that give G and dG/dr: with B the splines
/// of degree 5 and b those of degree 4 that cover the interval,
///   G = coef_0 + sum over k of (B_k+1 + ... + B_5) (coef_k+1 - coef_k),
///   dG/dr = sum over k of b_k/spacing (coef_k+1 - coef_k).
/// Differences keep the derivative accurate in float32.
/// @param left place in the interval, 0 to 1
/// @param value,slope [5] the weights
template <class T, class V>
PWMLFF_FORMULA void spline_weights(V left, V per_spacing, V *value, V *slope)
{
  const V right = T(1) - left;
  V b[6] = {right, left};
  raise_degree<2, T>(left, right, b);
  raise_degree<3, T>(left, right, b);
  raise_degree<4, T>(left, right, b);
  for (int k = 0; k < 5; ++k) slope[k] = b[k] * per_spacing;
  raise_degree<5, T>(left, right, b);
  value[4] = b[5];
  for (int k = 3; k >= 0; --k) value[k] = value[k + 1] + b[k + 1];
}

}    // namespace pwmlff

#endif
