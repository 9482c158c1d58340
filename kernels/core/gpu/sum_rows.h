// SPDX-License-Identifier: GPL-2.0-or-later

// Energy and virial of the whole, always summed in the same order, and whether all energies and
// forces are numbers.

#pragma once

#include "../team.h"

#include <cstddef>
#include <cstdint>

namespace pwmlff {

struct SumRows {
  static constexpr int lanes = 256;
  static constexpr const char *name = "SumRows";
  /// Nine of a virial, the energy, and zero or, where an energy or a force is none, no number.
  static constexpr int nsums = 11;
  static constexpr int ENERGY = 9, FINITE = 10;

  /// Numbers of a row follow each other.
  struct Rows {
    std::int64_t n;
    int stride;    // from one row to the next
    const double *values;
  };
  Rows virials, energies;    // of nine, and of one
  Rows others;               // of one, which have to be numbers, as energies have to
  int nteams;
  double *sums;    // [nteams, nsums]

  static constexpr std::size_t scratch_bytes() { return sizeof(double) * nsums * (lanes + parts); }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    double sum[nsums] = {};
    for_rows(team, item, virials, [&](const double *row) {
      for (int c = 0; c < 9; ++c) sum[c] += row[c];
    });
    for_rows(team, item, energies, [&](const double *row) {
      sum[ENERGY] += row[0];
      sum[FINITE] += 0.0 * row[0];
    });
    for_rows(team, item, others, [&](const double *row) { sum[FINITE] += 0.0 * row[0]; });
    double *const of_lanes = team.template scratch<double>();    // [nsums, lanes]
    double *const of_parts = of_lanes + nsums * team.lanes();    // [nsums, parts]
    for (int c = 0; c < nsums; ++c) of_lanes[c * team.lanes() + team.lane()] = sum[c];
    team.sync();
    for (int w = team.lane(); w < nsums * parts; w += team.lanes()) {
      double part = 0.0;
      for (int k = w % parts; k < team.lanes(); k += parts)
        part += of_lanes[w / parts * team.lanes() + k];
      of_parts[w] = part;
    }
    team.sync();
    for (int c = team.lane(); c < nsums; c += team.lanes()) {
      double whole = 0.0;
      for (int k = 0; k < parts; ++k) whole += of_parts[c * parts + k];
      sums[item * nsums + c] = whole;
    }
  }

 private:
  static constexpr int parts = 16;    // in which the lanes are summed up

  template <class Team, class Add>
  PWMLFF_HOST_DEVICE void for_rows(const Team &team, std::int64_t item, const Rows &rows,
                                   const Add &add_row) const
  {
    const std::int64_t step = static_cast<std::int64_t>(nteams) * team.lanes();
    for (std::int64_t r = item * team.lanes() + team.lane(); r < rows.n; r += step)
      add_row(rows.values + r * rows.stride);
  }
};

}    // namespace pwmlff
