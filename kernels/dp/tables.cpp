// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff {

// Errors of G and dG/dr. Each neighbor counts for one slot of many, so those of energies
// and forces come out smaller: with real and random models at most 1e-9 eV/atom and 1e-7 eV/A
// in precision double, and less than the rounding of float32 in mixed.
static SplineTolerance tolerance(DPPrecision precision)
{
  if (precision == DPPrecision::mixed) return {1e-7, 1e-5};
  return {3e-9, 3e-7};
}

DPPrecision dp_precision(const std::string &name)
{
  if (name == "exact") return DPPrecision::exact;
  if (name == "double") return DPPrecision::double_table;
  if (name == "mixed") return DPPrecision::mixed;
  throw std::invalid_argument("precision is '" + name + "', expected exact, double or mixed");
}

DPTables::DPTables(const DPNetwork &network, DPPrecision precision,
                   const std::vector<bool> &present)
{
  const int nspecies = network.nspecies();
  if (static_cast<int>(present.size()) != nspecies ||
      std::none_of(present.begin(), present.end(), [](bool p) { return p; }))
    throw std::invalid_argument("present has " + std::to_string(present.size()) +
                                " entries; give one for each of the " + std::to_string(nspecies) +
                                " species, at least one of them true");
  if (precision == DPPrecision::exact) return;
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

DPEngine::DPEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present,
                   std::shared_ptr<Device> device) :
    FusedEngine(std::move(device)),
    network_(std::move(network)),
    present(network_.with_slots(present)),
    splines(network_, precision, this->present)
{
  has_grade_ = !network_.grades.empty();
}

DPEngine::~DPEngine() = default;

}    // namespace pwmlff
