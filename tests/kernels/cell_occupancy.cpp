// SPDX-License-Identifier: GPL-2.0-or-later

// What a cell list on a GPU has to look at: a few atoms far away from 4000 others change nothing
// for these. Exits with 1 where they do.

#include "core/gpu/cell_grid.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

namespace {

constexpr int NROWS = 4000;
constexpr double REACH = 6.0, EDGE = 34.0;    // angstrom

struct Occupancy {
  std::int64_t fullest, seen, places;    // rows; rows that a center looks at; places for each row
};

Occupancy occupancy(const std::vector<std::array<double, 3>> &far)
{
  std::vector<double> x;
  std::mt19937 generator(1);
  for (int k = 0; k < 3 * NROWS; ++k) x.push_back(EDGE * (generator() / 4294967296.0));
  for (const auto &position : far) x.insert(x.end(), position.begin(), position.end());
  const auto nrows = static_cast<std::int64_t>(x.size() / 3);
  pwmlff::CellGrid::Bounds bounds;
  for (std::int64_t r = 0; r < nrows; ++r) bounds.add(&x[3 * r], REACH);
  const pwmlff::CellGrid grid(nrows, bounds, REACH);
  std::vector<int> rows(grid.nplaces());
  for (std::int64_t r = 0; r < nrows; ++r) ++rows[grid.place_of(&x[3 * r])];
  std::int64_t seen = 0;
  for (std::int64_t r = 0; r < nrows; ++r)
    grid.visit_places(&x[3 * r], [&](int first, int last) {
      for (int place = first; place <= last; ++place) seen += rows[place];
    });
  return {*std::max_element(rows.begin(), rows.end()), seen / nrows,
          static_cast<std::int64_t>(rows.size()) / nrows};
}

}    // namespace

int main()
{
  constexpr double INFINITE = std::numeric_limits<double>::infinity();
  std::vector<std::array<double, 3>> vapor;
  for (int k = 0; k < 50; ++k) vapor.push_back({EDGE * (k - 25), 7.0 * EDGE * k, -90.0 * k});
  const Occupancy dense = occupancy({});
  // In cells of 3 angstrom at 0.1 atoms each: a cube of 15 angstrom, less at the boundaries.
  bool fine = dense.fullest < 15 && dense.seen > 200 && dense.seen < 345;
  const std::vector<std::array<double, 3>> cases[] = {
      {{100 * EDGE, 100 * EDGE, 100 * EDGE}},
      {{-1e12, -1e12, -1e12}, {1e30, -1e30, 1e30}},
      {{INFINITE, -INFINITE, std::numeric_limits<double>::quiet_NaN()}},
      vapor};
  for (const auto &far : cases) {
    const Occupancy found = occupancy(far);
    std::cout << found.fullest << " " << found.seen << " " << found.places << "\n";
    fine &= found.fullest <= 2 * dense.fullest && 10 * found.seen <= 11 * dense.seen &&
            found.places <= 8;
  }
  return fine ? 0 : 1;
}
