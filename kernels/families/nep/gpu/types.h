// SPDX-License-Identifier: GPL-2.0-or-later

// What the host hands to the kernels, and the kernels to each other.

#pragma once

#include "../../../core/evaluation.h"
#include "../../../core/gpu/list.h"
#include "../../../core/host_device.h"
#include "../network.h"

#include <cstdint>

namespace pwmlff {

/// Functions g_n come in groups of so many, filled up with zeros.
constexpr int NEP_GROUP = 8;

/// Functions of a part for a pair of species: series of T_k as in NepSeries.
template <class T> struct NepGpuSeries {
  T per_cutoff;    // 1/angstrom
  const T *c;      // [groups, nbasis, NEP_GROUP]
};

template <class T> struct NepGpuPair {
  double near, cutoff;    // squared: of edges with an angular part or ZBL, and of all
  NepGpuSeries<T> radial, angular;
  ZblPair zbl;    // reach 0: there is none
};

template <class T> struct NepGpuNetwork {
  struct Layer {
    int in, out;
    const T *weight;        // [out, in]
    const T *transposed;    // [in, out]
    const T *bias;          // [out]
  };
  int nlayers;
  Layer layer[2];                 // weights of the first one include the scale of descriptors
  const T *last, *last_charge;    // the second one null where there are no charges
  double shift;
};

/// factor A_i A_j A_k of an invariant, or factor A_i A_j of its derivative by one of A.
template <class T> struct NepGpuProduct {
  int block;    // of the invariant, among those behind q_nl
  int i, j, k;
  T factor;
};

/// A block of invariants behind q_nl.
struct NepGpuInvariant {
  bool squared;       // q_n(1111)
  int first, last;    // else its products
};

template <class T> struct NepGpuModel {
  int nspecies;
  int nradial, nangular;         // functions
  int radial_groups, kradial;    // groups of them, functions f_k
  int angular_groups, kangular;
  int degree, places, l_max;    // the largest degree of A, numbers of (l, m), degrees of q_nl
  int ninvariants, squared;     // blocks behind q_nl, and which of them is q_n(1111); or -1
  int ndescriptors, nhidden;    // nhidden: of all layers
  bool temperature;
  const T *sphere;                     // math/sphere_sums.h
  const NepGpuPair<T> *pairs;          // [nspecies, nspecies] center first
  const NepGpuNetwork<T> *networks;    // [nspecies]
  const NepGpuInvariant *invariants;
  const NepGpuProduct<T> *products;
  const NepGpuProduct<T> *derivatives;    // by place of the A that they are derived by
  const int *first_derivative;            // [places + 1]

  /// Numbers dE/dq of the radial part, then dE/dA by place and function.
  PWMLFF_HOST_DEVICE int radial_size() const { return radial_groups * NEP_GROUP; }
  PWMLFF_HOST_DEVICE int row() const { return angular_groups * NEP_GROUP; }
  PWMLFF_HOST_DEVICE int slopes() const { return radial_size() + places * row(); }
};

/// Charges on a device, [ncenters] by center.
template <class T> struct NepGpuCharges {
  T *kept;           // [items, places*row() + nhidden] moments and hidden layer
  double *charge;    // out, before the mean is taken off, or null where it is known; then less it
  const double *potential;
  double mean;    // of potentials
};

/// What the items of a chunk hand from step to step.
template <class T> struct NepGpuChunk {
  const int *order;    // [items] centers
  int stride;
  int *count;    // [items, 2] near edges, others
  /// [items, stride] entries of the list: near ones from the front, others from the back
  int *candidate;
  int *kind;    // likewise, their species
  T *edge;      // [items, stride, 4] likewise, r_ij and its length
  T *slope;     // [items, model.slopes()]
  /// [ncenters, model.radial_size()] dE/dq by center, where one chunk has all centers: of an edge
  /// without angular part each of two centers takes the whole force. Else null.
  T *radial;
  int ncenters;
  std::int64_t base;    // items of earlier chunks

  PWMLFF_HOST_DEVICE int edges(std::int64_t item) const
  {
    return count[2 * item] + count[2 * item + 1];
  }
  PWMLFF_HOST_DEVICE std::int64_t index(std::int64_t item, int k) const
  {
    return index(item, k, count[2 * item]);
  }
  /// The index of edge k of an item, of which so many are near.
  PWMLFF_HOST_DEVICE std::int64_t index(std::int64_t item, int k, int near) const
  {
    return item * stride + (k < near ? k : stride - 1 - (k - near));
  }
};

}    // namespace pwmlff
