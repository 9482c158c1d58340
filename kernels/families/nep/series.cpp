// SPDX-License-Identifier: GPL-2.0-or-later

#include "series.h"

#include "../../math/harmonics.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <numbers>
#include <utility>

namespace pwmlff {
namespace {

using Complex = std::complex<double>;

/// A_lm by the real components: at most two terms.
std::vector<std::pair<int, Complex>> components(int l, int m)
{
  const int place = l * l - 1;
  if (m == 0) return {{place, 1.0}};
  const double half = std::numbers::sqrt2 / 2.0;
  // A_l-m = (-1)^m conj(A_lm)
  const double sign = m < 0 && m % 2 != 0 ? -1.0 : 1.0;
  const int k = std::abs(m);
  return {{place + 2 * k - 1, sign * half},
          {place + 2 * k, Complex(0.0, m < 0 ? -sign * half : half)}};
}

}    // namespace

NepSeries::NepSeries(const double *c, int nfunctions, int nbasis) :
    value(static_cast<std::size_t>(nfunctions) * nbasis), slope(value.size())
{
  for (int n = 0; n < nfunctions; ++n, c += nbasis) {
    double *const p = &value[static_cast<std::size_t>(n) * nbasis];
    double *const d = &slope[static_cast<std::size_t>(n) * nbasis];
    for (int k = 0; k < nbasis; ++k) {
      p[k] += 0.5 * c[k];
      p[0] += 0.5 * c[k];
    }
    // d_(k-1) = d_(k+1) + 2 k p_k, and half of that for k = 1.
    for (int k = nbasis - 1; k > 0; --k)
      d[k - 1] = (k + 1 < nbasis ? d[k + 1] : 0.0) + 2.0 * k * p[k];
    d[0] *= 0.5;
  }
}

NepSeries::~NepSeries() = default;

std::vector<NepProduct> nep_products(NepInvariant invariant)
{
  const auto &[l1, l2, l3] = NEP_DEGREES[static_cast<int>(invariant)];
  std::map<std::array<int, 3>, Complex> sums;
  for (int m1 = -l1; m1 <= l1; ++m1)
    for (int m2 = -l2; m2 <= l2; ++m2) {
      const double factor = wigner_3j(l1, l2, l3, m1, m2, -m1 - m2);
      if (factor == 0.0) continue;
      for (const auto &[i, a] : components(l1, m1))
        for (const auto &[j, b] : components(l2, m2))
          for (const auto &[k, c] : components(l3, -m1 - m2)) {
            std::array<int, 3> places{i, j, k};
            std::sort(places.begin(), places.end());
            sums[places] += factor * a * b * c;
          }
    }
  std::vector<NepProduct> products;
  for (const auto &[places, factor] : sums)
    if (std::abs(factor) > 1e-14)
      products.push_back({places[0], places[1], places[2], factor.real()});
  return products;
}

}    // namespace pwmlff
