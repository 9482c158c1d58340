// SPDX-License-Identifier: GPL-2.0-or-later

// Prints, for some arrangements of 4000 atoms and a few far away, how many rows the fullest place
// of a cell list holds, how many a center looks at on the average, and how many places there are
// for each row.

#include "neighbors/cell_grid.h"

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

void say(const char *name, const std::vector<std::array<double, 3>> &far)
{
  std::vector<double> x;
  std::mt19937 generator(1);
  for (int k = 0; k < 3 * NROWS; ++k) x.push_back(EDGE * (generator() / 4294967296.0));
  for (const auto &position : far) x.insert(x.end(), position.begin(), position.end());
  const auto nrows = static_cast<std::int64_t>(x.size() / 3);
  const pwmlff::CellGrid grid(nrows, x.data(), REACH);
  std::vector<int> rows(grid.nplaces());
  for (std::int64_t r = 0; r < nrows; ++r) ++rows[grid.place_of(&x[3 * r])];
  std::int64_t seen = 0;
  for (std::int64_t r = 0; r < nrows; ++r)
    grid.visit_places(&x[3 * r], [&](int first, int last) {
      for (int place = first; place <= last; ++place) seen += rows[place];
    });
  std::cout << name << ": " << *std::max_element(rows.begin(), rows.end()) << " " << seen / nrows
            << " " << rows.size() / nrows << "\n";
}

}    // namespace

int main()
{
  constexpr double INFINITE = std::numeric_limits<double>::infinity();
  say("dense", {});
  say("one far away", {{100 * EDGE, 100 * EDGE, 100 * EDGE}});
  say("very far away", {{-1e12, -1e12, -1e12}, {1e30, -1e30, 1e30}});
  say("not finite", {{INFINITE, -INFINITE, std::numeric_limits<double>::quiet_NaN()}});
  std::vector<std::array<double, 3>> vapor;
  for (int k = 0; k < 50; ++k) vapor.push_back({EDGE * (k - 25), 7.0 * EDGE * k, -90.0 * k});
  say("vapor", vapor);
  return 0;
}
