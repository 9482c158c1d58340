// SPDX-License-Identifier: GPL-2.0-or-later

#include "geometry.h"

#include <limits>

namespace pwmlff {

PairGeometry pair_geometry(const DPNetwork &network, int index, const SplineTable *table)
{
  PairGeometry geometry{};
  geometry.rmin = network.rmin;
  geometry.rmax = network.rmax;
  geometry.inv_width = 1.0 / (network.rmax - network.rmin);
  for (int c = 0; c < 4; ++c) {
    geometry.scale[c] = 1.0 / network.dstd[4 * index + c];
    geometry.shift[c] = -network.davg[4 * index + c] / network.dstd[4 * index + c];
  }
  if (!network.zbl.empty()) geometry.zbl = network.zbl[index];
  geometry.lowest = std::numeric_limits<double>::infinity();
  if (!table) return geometry;
  geometry.lowest = table->lowest;
  geometry.split = table->split;
  for (int k = 0; k < 2; ++k) {
    const SplineSegment &segment = table->segment[k];
    geometry.segment[k] = {segment.start, 1.0 / segment.spacing, segment.intervals - 1.0,
                           static_cast<double>(segment.first)};
  }
  return geometry;
}

}    // namespace pwmlff
