// SPDX-License-Identifier: GPL-2.0-or-later

// What the engine makes of a MaceNetwork before it knows precision and vectors.

#pragma once

#include "network.h"

#include <vector>

namespace pwmlff {

/// A sum over products of two factors: value times harmonic y goes to element `target`.
struct MaceCoupling {
  int target, y;
  double value;
};

/// One component of B as a polynomial of the components of m, in the nested form
///   sum over a of m_a (c_a + sum over b >= a of m_b (c_ab + sum over c >= b of c_abc m_c)),
/// which takes each monomial once.
struct MacePolynomial {
  /// The number of a; for each the index a and the number of b; for each of these b and the number
  /// of c; and those.
  std::vector<int> program;
  /// [present species, n, K] in the order of the program: c_a, then for each b c_ab and its c_abc
  std::vector<double> coefficients;
  int ncoefficients = 0;
};

struct MaceLayerPlan {
  /// [paths] those of A[m1*(2L+1) + M], in ascending order of the target. Harmonics are those of
  /// math/sphere.h behind one that is 1, with the axes (z, x, y) of e3nn as (x, y, z).
  std::vector<std::vector<MaceCoupling>> couplings;
  std::vector<MacePolynomial> polynomials;    // of all components of B
};

struct MacePlan {
  /// @param present [nspecies]
  MacePlan(const MaceNetwork &network, const std::vector<bool> &present);

  const MaceNetwork &network;
  std::vector<int> slot;       // [nspecies] place among those present, or -1
  std::vector<int> species;    // of each that is present
  std::vector<MaceLayerPlan> layers;
};

}    // namespace pwmlff
