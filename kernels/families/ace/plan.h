// SPDX-License-Identifier: GPL-2.0-or-later

// How an engine evaluates an ACE (network.h): the radial functions of each pair of species that
// take part, where their moments are, and the products of these, each of which is computed once.
//
// Values of a center are real numbers. First are ndensity sums over neighbors, to which functions
// of rank 1 are folded: with them the densities begin. Then come moments, of degree l
//
//   a_0 = A_l0,   a_2m-1 = sqrt(2) Re A_lm,   a_2m = sqrt(2) Im A_lm,     m = 1 .. l
//
// and then products of two complex or real values each, and of those. Densities are sums of
// coefficients times real parts of stored values and of products that are not stored. B functions
// of an active set are sums of the same terms; functions of rank 1 have moments of their own there.
//
// Which products are stored is found greedily: the pair of factors that most rows have is replaced
// by one factor in all of them, until each row has two (Larsson and Moffat 2000,
// doi:10.1109/5.892708, do so with texts). A pair and its conjugate are one.

#pragma once

#include "network.h"

#include <vector>

namespace pwmlff {

/// Radial functions of one degree.
struct AceGroup {
  int degree, nfunctions;
  int first;    // value of the first one's first component; each has 2 degree + 1
};

/// What neighbors of a species add to.
struct AceNeighborPlan {
  int species, degree;    // the largest one
  int nfunctions;         // of all groups
  std::vector<AceGroup> groups;
  std::vector<double> crad;    // [nbase of the bond, nfunctions], all factors in them
};

/// Of factors: real and real; real and complex; two complex ones; the second one conjugated.
enum class AceProductKind { real, mixed, complex, conjugate };

struct AceProduct {
  AceProductKind kind;
  int out, x, y;    // values; the imaginary part of a complex one is the next
};

/// Products that have one factor.
struct AceRun {
  AceProductKind kind;    // not mixed
  int x, first, count;    // in AceSpeciesPlan::y
};

struct AceSpeciesPlan {
  int ndensity = 0, nmoments = 0, nvalues = 0;    // moments: with the sums before them
  int nfunctions = 0;                             // B functions; 0 without an active set
  std::vector<AceNeighborPlan> neighbors;         // species that take part
  std::vector<AceProduct> products;               // stored, in order
  std::vector<int> single;                        // values that densities depend on themselves
  std::vector<double> single_coefficients;        // [single, ndensity]
  std::vector<AceRun> runs;
  std::vector<int> y;                  // values
  std::vector<double> coefficients;    // [y, ndensity]
  // What terms, of single and then of y, add to B functions: nothing without an active set.
  std::vector<int> first;         // [single + y + 1] in the next two
  std::vector<int> functions;     // which ones
  std::vector<double> gen_cgs;    // by how much
};

/// @param present [nspecies] the species that take part
AceSpeciesPlan ace_plan(const AceNetwork &network, int species, const std::vector<bool> &present);

}    // namespace pwmlff
