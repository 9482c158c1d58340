// SPDX-License-Identifier: GPL-2.0-or-later

// The plain evaluation of a NEP without torch: harmonics and Wigner 3j symbols against closed
// forms, forces and virials against finite differences. Exits with 1 where something differs.

#include "families/nep/plain_nep.h"
#include "families/nep/read_nep.h"
#include "math/harmonics.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;

constexpr int NROWS = 7, NCENTERS = 5, NSPECIES = 2;

int failures = 0;

void expect_close(const std::string &what, double found, double wanted, double tolerance)
{
  if (std::abs(found - wanted) <= tolerance) return;
  std::cout << what << " is " << found << ", expected " << wanted << "\n";
  ++failures;
}

double uniform(double low, double high)
{
  static std::mt19937 generator(1);
  return low + (high - low) * (generator() / 4294967296.0);
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

/// A cluster of which the last atoms are no centers, each a candidate of each other.
struct Cluster {
  Cluster()
  {
    for (int k = 0; k < 3 * NROWS; ++k) x.push_back(uniform(0.0, 3.5));
    for (int i = 0; i < NROWS; ++i) species.push_back(i % NSPECIES);
    for (int i = 0; i < NCENTERS; ++i)
      for (int s = 0; s < NSPECIES; ++s) {
        first.push_back(static_cast<int>(candidate.size()));
        for (int j = 0; j < NROWS; ++j)
          if (j != i && species[j] == s) candidate.push_back(j);
      }
    first.push_back(static_cast<int>(candidate.size()));
  }
  Input input(const std::vector<double> &positions) const
  {
    Input result;
    result.ncenters = NCENTERS;
    result.nrows = NROWS;
    result.x = positions.data();
    result.species = species.data();
    result.first = first.data();
    result.candidate = candidate.data();
    return result;
  }

  std::vector<double> x;
  std::vector<int> species, first, candidate;
};

/// @param count  of numbers behind the head
std::string random_file(const std::string &head, int count)
{
  std::string text = head;
  for (int k = 0; k < count; ++k) text += std::to_string(uniform(-0.5, 0.5)) + "\n";
  return text;
}

void check_derivatives(const std::string &text)
{
  PlainNep plain(read_nep(text));
  const Cluster cluster;
  const Evaluation found = plain.evaluate(cluster.input(cluster.x));
  const std::vector<double> force(found.force, found.force + 3 * NROWS);
  const std::array<double, 9> virial = found.virial;

  constexpr double step = 1e-4;
  // Minus the derivative along a displacement of all rows, by differences of fourth order.
  const auto slope_along = [&](const std::vector<double> &displacement) {
    const auto energy = [&](double s) {
      std::vector<double> x = cluster.x;
      for (std::size_t k = 0; k < x.size(); ++k) x[k] += s * displacement[k];
      return plain.evaluate(cluster.input(x)).energy;
    };
    const double near = energy(step) - energy(-step), far = energy(2 * step) - energy(-2 * step);
    return -(8 * near - far) / (12 * step);
  };
  const auto tolerance = [](double value) { return 1e-8 * std::max(1.0, std::abs(value)); };
  for (int k = 0; k < 3 * NROWS; ++k) {
    std::vector<double> displacement(3 * NROWS, 0.0);
    displacement[k] = 1.0;
    expect_close("force", force[k], slope_along(displacement), tolerance(force[k]));
  }
  for (int k = 0; k < 3; ++k) {    // xx yy zz
    std::vector<double> displacement(3 * NROWS, 0.0);
    for (int i = 0; i < NROWS; ++i) displacement[3 * i + k] = cluster.x[3 * i + k];
    expect_close("virial", virial[k], slope_along(displacement), tolerance(virial[k]));
  }
}

}    // namespace

int main()
{
  check_harmonics();
  const std::string body = "cutoff 5 4\nn_max 1 1\nbasis_size 2 2\n";
  // D = 2 + 2 (4 + 6) = 22, and 2 + 2 (2 + 1) = 8 with two layers
  check_derivatives(
      random_file("nep4_zbl 2 O Hf\nzbl 1 2\n" + body + "l_max 4 1 1 1 1 1 1\nANN 4 0\n",
                  2 * 24 * 4 + 1 + 4 * 12 + 22));
  check_derivatives(random_file("nep5 2 O Hf\n" + body + "l_max 2 2 0\nANN 4 3\n",
                                2 * (9 * 4 + 6 * 3 + 1) + 1 + 4 * 12 + 8));
  return failures > 0;
}
