// SPDX-License-Identifier: GPL-2.0-or-later

// What the host hands to the kernels, and the kernels to each other.
//
// Arrays of channels have `row` numbers for each component, those beyond the last channel are zero.

#pragma once

#include "../../../core/gpu/list.h"
#include "../../../core/host_device.h"
#include "../cpu/mace_tables.h"
#include "../network.h"

#include <cstdint>

namespace pwmlff {

/// Rows of channels are multiples of this.
constexpr int MACE_CHANNELS = 32;
/// Edges of one item of MaceEdgeGradients.
constexpr int MACE_PART = 32;

/// value times harmonic y belongs to coupling `target`, and the other way round.
template <class T> struct MaceGpuTerm {
  int target, y;
  T value;
};

struct MaceGpuPath {
  int feature, degree;    // l1, L
  int column;             // the first of its radial functions
  int sums, step;         // of A: row of its first component, and from one to the next
  int first;              // its first coupling [m1, M] among those of all paths
  int parity;             // of its harmonics: factor of couplings in the other direction
};

/// Couplings of all paths as a sparse matrix, by rows and by columns.
template <class T> struct MaceGpuCouplings {
  const int *first_by_target;    // [ncouplings + 1]
  const MaceGpuTerm<T> *by_target;
  const int *first_by_y;    // [into + 1][ncomponents + 1], of the paths of a feature degree
  const MaceGpuTerm<T> *by_y;
};

/// Polynomials of a few components (contract.h).
template <class T> struct MaceGpuPolynomials {
  int noutputs;
  const int *first;         // [noutputs + 1] terms of each
  const int *terms;         // numbers of MaceTermCode
  const T *coefficients;    // [present, terms, row]
};

template <class T> struct MaceGpuLayer {
  int into, out;    // largest degrees of features
  int npaths, ncouplings;
  int first_path[MACE_MOST_DEGREE + 2];    // of those of a feature degree
  int first_coupling[MACE_MOST_DEGREE + 2];
  int nsums;      // rows of A
  int columns;    // of radial functions
  bool density;
  const MaceGpuPath *paths;
  MaceGpuCouplings<T> couplings;
  const MaceTable<T> *tables;    // [pairs], coefficients on the device
  // Of the net and the density.
  int nlayers, widest;              // products; hidden layers and basis
  const int *columns_of;            // [nlayers]
  const double *const *weights;     // [nlayers] [rows, columns], of the last [rows, columns of R]
  const double *density_weights;    // [nbasis]
  MaceGpuPolynomials<T> contraction, contraction_back;    // m to B; m and dE/dB to dE/dm
  // Of readouts.
  const double *readout;                         // [K] or null
  int nhidden;                                   // 0: none
  const double *readout_first, *readout_last;    // [K, nhidden], [nhidden]

  PWMLFF_HOST_DEVICE static int components(int degree) { return (degree + 1) * (degree + 1); }
};

template <class T> struct MaceGpuModel {
  int nspecies, channels, row;    // K, and K filled up
  const T *sphere;                // math/sphere_sums.h
  int ncomponents;                // of harmonics and messages
  int largest;                    // degree of those
  double cutoff;
  bool is_bessel, cutoff_first, has_agnesi;
  int nbasis;
  double factor, power, agnesi[3];
  const double *frequency;    // [nbasis]
  const double *radii;        // [nspecies], where there is a transform
  const double *energy;       // [nspecies] with the shift
  double scale;
  const int *slot;    // [nspecies] place among those present
  double zbl[5];
  const double *zbl_length, *zbl_strength, *zbl_reach;    // [nspecies, nspecies], or null

  PWMLFF_HOST_DEVICE int pair_of(int a, int b) const
  {
    return mace_pair(has_agnesi, nspecies, a, b);
  }
};

/// An edge whose radial functions are evaluated as they stand: in precision `exact`, and below the
/// tables.
struct MaceGpuShort {
  int row;     // of the neighbor
  int a, b;    // species
  double r;
};

/// What the items of a chunk, centers in the order of species, hand from step to step.
template <class T> struct MaceGpuChunk {
  const int *order;      // [items] rows of centers
  const int *segment;    // [nspecies + 1] items of each species
  /// [nrows] the item that a row is or stands for, or -1; null where the chunk has not all centers
  const int *item_of_row;
  int nitems, stride;    // most edges of an item
  int *count;            // [items]
  int *neighbor;         // [items, stride] row; ~n of number n of short edges
  T *edge;               // [items, stride, 4] r_ij and its length
  T *sums;               // [items, nsums, row] A, on the way back dE/dA
  T *message;            // [items, ncomponents, row] m
  T *by_message;         // likewise, dE/dm
  T *contracted;         // [items, components that leave, row] B, on the way back dE/dB
  double *density;       // [items] 1/(1 + D), where the layer has one
  double *by_density;    // [items] dE/dD
  // Short edges.
  std::int64_t *nshort;    // how many there are, though there may be room for fewer
  std::int64_t most_short;
  MaceGpuShort *short_edge;
  T *short_radial;    // [most_short, 2, columns] radial functions and derivatives
};

}    // namespace pwmlff
