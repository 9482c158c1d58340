// SPDX-License-Identifier: GPL-2.0-or-later

// What follows from the arrays of a NEP alone, in the form that fast engines use.

#pragma once

#include "network.h"

#include <vector>

namespace pwmlff {

/// Sums over k of c_k (T_k(x) + 1)/2 and their derivatives by x as series of T_k:
///   P_n(x) = sum over k of value[n,k] T_k(x),   dP_n/dx = sum over k of slope[n,k] T_k(x)
struct NepSeries {
  /// @param c [nfunctions, nbasis]
  NepSeries(const double *c, int nfunctions, int nbasis);
  ~NepSeries();    // not inline: code for several instruction sets calls it

  std::vector<double> value, slope;    // [nfunctions, nbasis]; the last slope is 0
};

/// factor A_i A_j A_k, of real components of moments: i, j, k are places of (l, m) as in
/// math/sphere.h.
struct NepProduct {
  int i, j, k;
  double factor;
};

/// An invariant of three A as a sum of such products, each once.
std::vector<NepProduct> nep_products(NepInvariant invariant);

}    // namespace pwmlff
