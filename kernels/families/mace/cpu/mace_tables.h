// SPDX-License-Identifier: GPL-2.0-or-later

// The tables of radial functions, for an engine that is not compiled once per instruction set.

#pragma once

#include "../plan.h"

#include <cstddef>

namespace pwmlff {

/// Splines of all columns at once (radial.h). Below `lowest` functions have no table.
template <class T> struct MaceTable {
  const T *coef = nullptr;    // [intervals + 5, columns]
  int intervals = 0;
  double lowest = 0.0, start = 0.0, per_spacing = 0.0;
};

/// Columns are R_p,k at p*stride + k, zero beyond the last channel, and behind the paths rho where
/// there is a density.
template <class T> class MaceTables {
 public:
  virtual ~MaceTables() = default;
  /// Of a layer and MaceNetwork::pair_of(); empty where none of the species takes part.
  virtual MaceTable<T> table(int layer, int pair) const = 0;
  virtual int columns(int layer) const = 0;
  virtual std::size_t bytes() const = 0;
};

#define PWMLFF_DECLARE_TABLES(isa)                                                               \
  namespace isa {                                                                                \
  template <class T> MaceTables<T> *make_mace_tables(const MacePlan &, int stride, int density); \
  }
PWMLFF_DECLARE_TABLES(baseline)
PWMLFF_DECLARE_TABLES(avx2)
PWMLFF_DECLARE_TABLES(avx512)
#undef PWMLFF_DECLARE_TABLES

}    // namespace pwmlff
