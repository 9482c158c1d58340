// SPDX-License-Identifier: GPL-2.0-or-later

// The embedding nets of a DP as splines of the distance.
//
// G(r) = embedding(R~_0(r)) is a curve in R^M. As a function of r it is smooth everywhere but at
// rmin, where its third derivative jumps, so there is one uniform quintic B-spline on each side:
//
//   y = (r - start) / spacing, i = floor(y), t = y - i
//   G(r) = sum over k = 0..5 of B_k(t) coef[first + i + k]
//
// The coefficients follow from values and second derivatives at nearby nodes alone (a quasi-
// interpolant of order 6, de Boor, A Practical Guide to Splines, 2001, chapter XII; splines of
// degree 5 in distance: error ~ spacing^6). Distances below
// `lowest` are outside the table, there the nets themselves are to be evaluated.

#pragma once

#include "network.h"

#include <vector>

namespace pwmlff {

struct SplineSegment {
  double start = 0.0;    // distance where y = 0
  double spacing = 1.0;
  int intervals = 0;
  int first = 0;    // row of coef of the first coefficient; there are intervals + 5
};

struct SplineTable {
  double lowest;    // the table holds for lowest <= r <= rmax
  double split;     // r < split: segment[0], else segment[1]
  SplineSegment segment[2];
  std::vector<double> coef;      // [rows, M]
  std::vector<double> g_rmax;    // [M] the spline at rmax, where empty slots are
  double value_error;            // largest |G - exact| / max(1, |exact|) seen between the nodes
  double slope_error;            // the same of dG/dr
};

/// What value_error and slope_error have to stay below.
struct SplineTolerance {
  double value, slope;
};

/// Table for centers of species a and neighbors of species b. The spacing is refined until the
/// tolerance holds at points between the nodes for r >= rmax/8; from there the table goes on
/// towards rmax/16 as long as it does.
/// @throws std::runtime_error when no reasonable spacing will do
SplineTable make_spline(const DPNetwork &network, int a, int b, const SplineTolerance &tolerance);

}    // namespace pwmlff
