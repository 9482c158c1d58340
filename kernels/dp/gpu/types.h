/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What the host hands to the kernels, and the kernels to each other.

#ifndef PWMLFF_DP_GPU_TYPES_H
#define PWMLFF_DP_GPU_TYPES_H

#include "../../common/launch.h"
#include "../geometry.h"
#include "../pair_terms.h"

#include <cstdint>

namespace pwmlff {

/// One layer of a net on the device (DPLayer).
struct DeviceLayer {
  int in, out;
  bool residual;
  const double *weight;        // [in, out]
  const double *transposed;    // [out, in]; fitting nets only
  const double *bias;          // [out]
  const double *step;          // [out] factor of tanh; fitting nets only
};

template <class T> struct DevicePair {
  bool present;    // both species take part
  PairGeometry geometry;
  const T *table;          // [rows, padded] G - G(rmax); null: the net is evaluated
  const double *beyond;    // [padded] G at and beyond the cutoff
  int nlayers;
  const DeviceLayer *layers;
};

struct DeviceFitting {
  int nlayers;    // hidden ones
  const DeviceLayer *layers;
  int nlast;    // inputs of the last, linear layer
  const double *last;
  double last_bias;
};

template <class T> struct DeviceModel {
  int nspecies, max_neighbor;
  int width, padded;                // M, and rounded up to whole vectors
  int m2;                           // axis width
  int widest_embedding;             // layer
  double cutsq, scale;              // scale: 1/(max_neighbor * species that take part)
  const DevicePair<T> *pairs;       // [nspecies, nspecies] centre first
  const DeviceFitting *fittings;    // [nspecies]
};

/// Atoms and candidates on the device, as in DPInput.
struct DeviceList {
  const double *x;       // [nrows, 3]
  const int *species;    // [nrows]
  const int *first;      // [ncentres*nspecies + 1]
  const int *candidate;
};

/// What the items of a chunk hand from step to step. Edges of an item start at item*stride, by
/// species of the neighbour.
template <class T> struct DeviceChunk {
  const int *order;    // [items] centres
  int stride;
  int *count;            // [items, nspecies] edges
  double *slots;         // [items, nspecies, 4] sum of R~ over all slots
  int *neighbour;        // [items, stride] row
  int *row;              // first coefficient in the table; negative: evaluate the net
  T *place;              // in the interval
  T *environment;        // [items, stride, 4] R~
  T *derivative;         // [items, stride, 5] dE/dr through G, dE/dR~
  double *moments;       // [items, 4, padded]
  T *moment_gradient;    // [items, 4, padded] dE/d(sum over slots), scale included
  std::int64_t base;     // items of earlier chunks
};

/// A centre with too many neighbours, as a number that is the larger the earlier its row is; 0: none.
struct DeviceOverflow {
  static constexpr int MOST_ROWS = 0x7fffffff, MOST_SPECIES = 0xff, MOST_COUNT = 0xffffff;
  int row, species, count;

  PWMLFF_HOST_DEVICE long long key() const
  {
    return (static_cast<long long>(MOST_ROWS - row) << 32) |
           (static_cast<long long>(MOST_SPECIES - species) << 24) |
           (count < MOST_COUNT ? count : MOST_COUNT);
  }
  static DeviceOverflow of(long long key)
  {
    return {MOST_ROWS - static_cast<int>(key >> 32),
            MOST_SPECIES - static_cast<int>(key >> 24 & MOST_SPECIES),
            static_cast<int>(key & MOST_COUNT)};
  }
};

/// Centres of one species that are fitted together.
struct DeviceBlock {
  int species, first, count;    // items first .. first+count-1 of the chunk
};

/// r and what follows from it.
PWMLFF_FORMULA RadialTerms<double, double> radial_terms(double r, const PairGeometry &pair)
{
  return {r, switch_place(r, pair.rmin, pair.inv_width), pair.inv_width};
}

}    // namespace pwmlff

#endif
