// SPDX-License-Identifier: GPL-2.0-or-later

#include "tables.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff {

// Errors of G and dG/dr. Each neighbor counts for one slot of many, so those of energies
// and forces come out smaller: with real and random models at most 1e-9 eV/atom and 1e-7 eV/A
// in precision double, and less than the rounding of float32 in mixed.
static SplineTolerance tolerance(Precision precision)
{
  if (precision == Precision::mixed) return {1e-7, 1e-5};
  return {3e-9, 3e-7};
}

DPTables::DPTables(const DPNetwork &network, Precision precision, const std::vector<bool> &present)
{
  const int nspecies = network.nspecies();
  if (static_cast<int>(present.size()) != nspecies ||
      std::none_of(present.begin(), present.end(), [](bool p) { return p; }))
    throw std::invalid_argument("present has " + std::to_string(present.size()) +
                                " entries; give one for each of the " + std::to_string(nspecies) +
                                " species, at least one of them true");
  if (precision == Precision::exact) return;
  tables.resize(static_cast<std::size_t>(nspecies) * nspecies);
  for (int a = 0; a < nspecies; ++a)
    for (int b = 0; b < nspecies; ++b) {
      if (!present[a] || !present[b]) continue;
      SplineTable &table = tables[a * nspecies + b];
      table = make_spline(network, a, b, tolerance(precision));
      value_error = std::max(value_error, table.value_error);
      slope_error = std::max(slope_error, table.slope_error);
    }
}

}    // namespace pwmlff
