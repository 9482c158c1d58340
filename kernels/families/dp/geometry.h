// SPDX-License-Identifier: GPL-2.0-or-later

// What CPU and GPU engines share about the edges of a pair of species.

#pragma once

#include "network.h"
#include "spline.h"

#include <vector>

namespace pwmlff {

/// What the environment and the place in the table of an edge depend on, apart from r_ij.
struct PairGeometry {
  double rmin, inv_width, rmax;
  double scale[4], shift[4];    // R~ = R*scale + shift
  ZblPair zbl;                  // reach 0: there is none
  double lowest, split;         // of the table, as in SplineTable; lowest is infinite without one
  struct Segment {
    double start, inv_spacing, last, first;    // last interval, row of the first coefficient
  } segment[2];
};

/// @param index center species * nspecies + neighbor species
/// @param table null where the embedding net is evaluated as it is
PairGeometry pair_geometry(const DPNetwork &network, int index, const SplineTable *table);

}    // namespace pwmlff
