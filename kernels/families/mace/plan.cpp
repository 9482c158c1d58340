// SPDX-License-Identifier: GPL-2.0-or-later

#include "plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numbers>

namespace pwmlff {
namespace {

// Component m + l of degree l, as e3nn orders them, is this one of math/sphere.h, and
// the sign between the two: that one has the phase of Condon and Shortley.
int place_of(int l, int component, double &sign)
{
  const int m = std::abs(component - l);
  sign = m % 2 ? -1.0 : 1.0;
  return l * l + (component == l ? 0 : component > l ? 2 * m - 1 : 2 * m);
}

std::vector<MaceCoupling> couplings_of(const MacePath &path)
{
  const int n1 = 2 * path.feature + 1, n2 = 2 * path.harmonic + 1, n = 2 * path.degree + 1;
  // "component" normalization: squares sum to 2l + 1; those of sphere.h to (2l + 1)/(4 pi).
  const double norm = path.harmonic > 0 ? std::sqrt(4.0 * std::numbers::pi) : 1.0;
  std::vector<MaceCoupling> result;
  for (int m1 = 0; m1 < n1; ++m1)
    for (int m = 0; m < n; ++m)
      for (int m2 = 0; m2 < n2; ++m2) {
        const double value = path.coupling[(static_cast<std::size_t>(m1) * n2 + m2) * n + m];
        if (value == 0.0) continue;
        double sign = 1.0;
        const int y = place_of(path.harmonic, m2, sign);
        result.push_back({m1 * n + m, y, sign * norm * value});
      }
  return result;
}

using Monomial = std::array<int, 3>;    // ascending; -1 behind the last

// All terms of a component by their monomial.
class Collected {
 public:
  Collected(const std::vector<MaceTerms> &orders, int component, const MacePlan &plan) :
      channels(plan.network.channels), species(plan.species)
  {
    for (const MaceTerms &order : orders)
      for (const MaceTerms::Term &term : order.terms) {
        if (term.component != component) continue;
        Monomial monomial = {-1, -1, -1};
        for (int k = 0; k < order.order; ++k) monomial[k] = term.factor[k];
        std::vector<double> &sum = sums[monomial];
        sum.resize(species.size() * channels, 0.0);
        for (std::size_t s = 0; s < species.size(); ++s)
          for (int k = 0; k < channels; ++k)
            sum[s * channels + k] +=
                term.coefficient *
                order.weights[(static_cast<std::size_t>(species[s]) * order.nparameters +
                               term.parameter) *
                                  channels +
                              k];
      }
  }

  MacePolynomial nested() const
  {
    std::map<int, std::map<int, std::vector<int>>> tree;
    for (const auto &[monomial, sum] : sums) {
      auto &of_a = tree[monomial[0]];
      if (monomial[1] < 0) continue;
      auto &of_b = of_a[monomial[1]];
      if (monomial[2] >= 0) of_b.push_back(monomial[2]);
    }
    MacePolynomial result;
    std::vector<Monomial> order;
    result.program.push_back(static_cast<int>(tree.size()));
    for (const auto &[a, of_a] : tree) {
      result.program.insert(result.program.end(), {a, static_cast<int>(of_a.size())});
      order.push_back({a, -1, -1});
      for (const auto &[b, of_b] : of_a) {
        result.program.insert(result.program.end(), {b, static_cast<int>(of_b.size())});
        order.push_back({a, b, -1});
        for (const int c : of_b) {
          result.program.push_back(c);
          order.push_back({a, b, c});
        }
      }
    }
    result.ncoefficients = static_cast<int>(order.size());
    for (std::size_t s = 0; s < species.size(); ++s)
      for (const Monomial &monomial : order) {
        const auto found = sums.find(monomial);
        for (int k = 0; k < channels; ++k)
          result.coefficients.push_back(found == sums.end() ? 0.0
                                                            : found->second[s * channels + k]);
      }
    return result;
  }

 private:
  int channels;
  const std::vector<int> &species;
  std::map<Monomial, std::vector<double>> sums;    // [present species, K]
};

}    // namespace

MacePlan::MacePlan(const MaceNetwork &network, const std::vector<bool> &present) :
    network(network), slot(network.nspecies(), -1)
{
  for (int s = 0; s < network.nspecies(); ++s)
    if (present[s]) {
      slot[s] = static_cast<int>(species.size());
      species.push_back(s);
    }
  for (const MaceLayer &layer : network.layers) {
    MaceLayerPlan plan;
    for (const MacePath &path : layer.paths) plan.couplings.push_back(couplings_of(path));
    for (int l = 0; l <= layer.out(); ++l)
      for (int m = 0; m <= 2 * l; ++m)
        plan.polynomials.push_back(Collected(layer.contraction[l], m, *this).nested());
    layers.push_back(std::move(plan));
  }
}

}    // namespace pwmlff
