// SPDX-License-Identifier: GPL-2.0-or-later

#include "harmonics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace pwmlff {
namespace {

double factorial(int n)
{
  double result = 1.0;
  for (int k = 2; k <= n; ++k) result *= k;
  return result;
}

double sign(int n) { return n % 2 == 0 ? 1.0 : -1.0; }

/// Coefficients of the Legendre polynomials P_0 .. P_largest, by
/// (l+1) P_l+1 = (2l+1) z P_l - l P_l-1.
std::vector<std::vector<double>> legendre(int largest)
{
  std::vector<std::vector<double>> p = {{1.0}, {0.0, 1.0}};
  for (int l = 1; l < largest; ++l) {
    std::vector<double> next(l + 2, 0.0);
    for (int k = 0; k <= l; ++k) next[k + 1] += (2 * l + 1) * p[l][k] / (l + 1);
    for (int k = 0; k < l; ++k) next[k] -= l * p[l - 1][k] / (l + 1);
    p.push_back(next);
  }
  return p;
}

}    // namespace

double wigner_3j(int l1, int l2, int l3, int m1, int m2, int m3)
{
  const bool possible = m1 + m2 + m3 == 0 && l3 >= std::abs(l1 - l2) && l3 <= l1 + l2 &&
                        std::abs(m1) <= l1 && std::abs(m2) <= l2 && std::abs(m3) <= l3;
  if (!possible) return 0.0;
  double sum = 0.0;
  const int first = std::max({0, l2 - l3 - m1, l1 - l3 + m2});
  const int last = std::min({l1 + l2 - l3, l1 - m1, l2 + m2});
  for (int k = first; k <= last; ++k)
    sum += sign(k) /
           (factorial(k) * factorial(l1 + l2 - l3 - k) * factorial(l1 - m1 - k) *
            factorial(l2 + m2 - k) * factorial(l3 - l2 + m1 + k) * factorial(l3 - l1 - m2 + k));
  double square = factorial(l1 + l2 - l3) * factorial(l1 - l2 + l3) * factorial(l2 + l3 - l1) /
                  factorial(l1 + l2 + l3 + 1);
  square *= factorial(l1 + m1) * factorial(l1 - m1);
  square *= factorial(l2 + m2) * factorial(l2 - m2);
  square *= factorial(l3 + m3) * factorial(l3 - m3);
  return sign(l1 - l2 - m3) * sum * std::sqrt(square);
}

Harmonics::Harmonics(int largest) : largest(largest)
{
  const auto p = legendre(largest);
  for (int l = 1; l <= largest; ++l) {
    std::vector<double> derivative = p[l];
    for (int m = 0; m <= l; ++m) {
      const double norm = sign(m) * std::sqrt((2 * l + 1) / (4.0 * std::numbers::pi) *
                                              factorial(l - m) / factorial(l + m));
      polynomial.push_back(derivative);
      for (double &coefficient : polynomial.back()) coefficient *= norm;
      for (std::size_t k = 1; k < derivative.size(); ++k)
        derivative[k - 1] = static_cast<double>(k) * derivative[k];
      derivative.pop_back();
    }
  }
  y.resize(polynomial.size());
  gradient.resize(polynomial.size());
}

void Harmonics::evaluate(const double *u)
{
  using Complex = std::complex<double>;
  const Complex plane(u[0], u[1]), i(0.0, 1.0);
  for (int l = 1; l <= largest; ++l) {
    Complex power = 1.0, lower = 0.0;    // (x + i y)^m and ^(m-1)
    for (int m = 0; m <= l; ++m) {
      const int at = place(l, m);
      double value = 0.0, slope = 0.0;
      for (int k = l - m; k >= 0; --k) {
        slope = slope * u[2] + value;
        value = value * u[2] + polynomial[at][k];
      }
      y[at] = value * power;
      const Complex by_x = value * static_cast<double>(m) * lower;
      std::array<Complex, 3> &g = gradient[at] = {by_x, i * by_x, slope * power};
      const Complex along_u = g[0] * u[0] + g[1] * u[1] + g[2] * u[2];
      for (int c = 0; c < 3; ++c) g[c] -= along_u * u[c];
      lower = power;
      power *= plane;
    }
  }
}

}    // namespace pwmlff
