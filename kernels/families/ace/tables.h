// SPDX-License-Identifier: GPL-2.0-or-later

// What an engine has of an ACE: its plan for each species, and the tables of network.h as cubic
// polynomials, c0 + u c1 + u^2 c2 + u^3 c3 with u from 0 to 1 in a bin. Bonds with the same radial
// base have one table. The bin behind the last one is 0.

#pragma once

#include "formulas.h"
#include "plan.h"

#include <vector>

namespace pwmlff {

struct AceTable {
  int bins = 0, nfunctions = 0;
  double scale = 0.0;                  // bins/rcut
  std::vector<double> coefficients;    // [bins + 1, nfunctions, 4]
};

struct AceEngineNetwork {
  AceEngineNetwork(const AceNetwork &network, const std::vector<bool> &present);

  const AceNetwork network;
  std::vector<bool> present;
  std::vector<AceSpeciesPlan> plans;    // [nspecies], empty for those that take no part
  std::vector<AceTable> tables;         // of radial bases
  std::vector<int> table_of;            // [nspecies, nspecies]
  std::vector<AceTable> core;           // [nspecies, nspecies] of one function, bins 0 without one
};

}    // namespace pwmlff
