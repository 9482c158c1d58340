// SPDX-License-Identifier: GPL-2.0-or-later

// What the host hands to the kernels, and the kernels to each other.

#pragma once

#include "../../../core/evaluation.h"
#include "../../../core/gpu/list.h"
#include "../../../core/host_device.h"
#include "../geometry.h"
#include "../pair_terms.h"

#include <cstdint>

namespace pwmlff {

/// One layer of a net on the device (DPLayer).
template <class T> struct GpuLayer {
  int in, out;
  bool residual;
  const T *weight;        // [in, out]
  const T *transposed;    // [out, in]; fitting nets only
  const T *bias;          // [out]
  const T *step;          // [out] factor of tanh
};

template <class T> struct GpuPair {
  bool present;    // both species take part
  int sel;         // slots
  PairGeometry geometry;
  const T *table;          // [rows, table_row] G - G(rmax); null: the net is evaluated
  const double *g_rmax;    // [padded] G at and beyond the cutoff
  int nlayers;
  const GpuLayer<double> *layers;
};

template <class T> struct GpuFitting {
  int nlayers;    // hidden ones
  const GpuLayer<T> *layers;
  int nlast;    // inputs of the last, linear layer
  const T *last;
  double last_bias;
  const T *grade_mean;      // [nlast], or null without a grade
  const T *grade_factor;    // [nlast, nlast] column by column
};

template <class T> struct GpuModel {
  int nspecies;
  int width, padded;                // M, and rounded up to whole vectors
  int table_row;                    // M rounded up to whole lines of a cache
  int m2;                           // axis width
  int widest_embedding;             // layer
  double cutsq, scale;              // scale: 1/(number of slots)
  const GpuPair<T> *pairs;          // [nspecies, nspecies] center first
  const GpuFitting<T> *fittings;    // [nspecies]
};

/// What the items of a chunk hand from step to step. Edges of an item start at item*stride, by
/// species of the neighbor.
template <class T> struct GpuChunk {
  const int *order;    // [items] centers
  int stride, nspecies;
  int *count;            // [items, nspecies] edges
  double *slots;         // [items, nspecies, 4] sum of R~ over all slots
  int *candidate;        // [items, stride] entry of the list
  int *row;              // first coefficient in the table; negative: evaluate the net
  T *place;              // in the interval
  T *environment;        // [items, stride, 4] R~
  T *derivative;         // [items, stride, 5] dE/dr through G, dE/dR~
  double *moments;       // [items, 4, padded]
  T *moment_gradient;    // [items, 4, padded] dE/d(sum over slots), scale included
  std::int64_t base;     // items of earlier chunks

  PWMLFF_HOST_DEVICE int edges(std::int64_t item) const
  {
    int all = 0;
    for (int b = 0; b < nspecies; ++b) all += count[item * nspecies + b];
    return all;
  }
  PWMLFF_HOST_DEVICE std::int64_t index(std::int64_t item, int k) const
  {
    return item * stride + k;
  }
};

/// An Excess as a number that is the larger the earlier its row is; 0: none. Its limit is not kept.
constexpr int MOST_ROWS = 0x7fffffff, MOST_SPECIES = 0xff, MOST_COUNT = 0xffffff;
PWMLFF_FORMULA std::int64_t key_of(const Excess &excess)
{
  return (static_cast<std::int64_t>(MOST_ROWS - excess.row) << 32) |
         (static_cast<std::int64_t>(MOST_SPECIES - excess.species) << 24) |
         (excess.count < MOST_COUNT ? excess.count : MOST_COUNT);
}
inline Excess excess_of(std::int64_t key)
{
  return {MOST_ROWS - static_cast<int>(key >> 32),
          MOST_SPECIES - static_cast<int>(key >> 24 & MOST_SPECIES),
          static_cast<int>(key & MOST_COUNT), 0};
}

/// Centers of one species that are fitted together.
struct GpuBlock {
  int species, first, count;    // items first .. first+count-1 of the chunk
};

/// r and what follows from it.
PWMLFF_FORMULA RadialTerms<double, double> radial_terms(double r, const PairGeometry &pair)
{
  return {r, switch_place(r, pair.rmin, pair.inv_width), pair.inv_width};
}

}    // namespace pwmlff
