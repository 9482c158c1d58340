// SPDX-License-Identifier: GPL-2.0-or-later

// Harmonics and Wigner 3j symbols against closed forms. Exits with 1 where something differs.

#include "math/harmonics.h"

#include <cmath>
#include <iostream>
#include <numbers>
#include <string>

namespace {

using namespace pwmlff;

int failures = 0;

void expect_close(const std::string &what, double found, double wanted, double tolerance)
{
  if (std::abs(found - wanted) <= tolerance) return;
  std::cout << what << " is " << found << ", expected " << wanted << "\n";
  ++failures;
}

void check_harmonics()
{
  using std::numbers::pi;
  // Edmonds 1957, table 2
  expect_close("(1 1 0; 0 0 0)", wigner_3j(1, 1, 0, 0, 0, 0), -std::sqrt(1.0 / 3.0), 1e-15);
  expect_close("(2 2 2; 0 0 0)", wigner_3j(2, 2, 2, 0, 0, 0), -std::sqrt(2.0 / 35.0), 1e-15);
  expect_close("(1 1 2; 1 -1 0)", wigner_3j(1, 1, 2, 1, -1, 0), std::sqrt(1.0 / 30.0), 1e-15);
  expect_close("(1 2 3; 1 0 0)", wigner_3j(1, 2, 3, 1, 0, 0), 0.0, 0.0);

  Harmonics harmonics(8);
  const double u[] = {0.36, -0.48, 0.8};
  harmonics.evaluate(u);
  expect_close("Re Y_11", harmonics.y[Harmonics::place(1, 1)].real(),
               -std::sqrt(3.0 / (8.0 * pi)) * u[0], 1e-15);
  expect_close("Y_20", harmonics.y[Harmonics::place(2, 0)].real(),
               std::sqrt(5.0 / (16.0 * pi)) * (3.0 * u[2] * u[2] - 1.0), 1e-15);
  for (int l = 1; l <= 8; ++l) {    // the addition theorem
    double sum = 0.0;
    for (int m = 0; m <= l; ++m)
      sum += (m ? 2.0 : 1.0) * std::norm(harmonics.y[Harmonics::place(l, m)]);
    expect_close("sum over m", sum, (2 * l + 1) / (4.0 * pi), 1e-13);
  }
}

}    // namespace

int main()
{
  check_harmonics();
  return failures > 0;
}
