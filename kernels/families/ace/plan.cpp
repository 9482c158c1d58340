// SPDX-License-Identifier: GPL-2.0-or-later

#include "plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numbers>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace pwmlff {
namespace {

/// A factor of a row: an item, and whether it is conjugated, in the last bit.
using Factor = std::uint32_t;

struct Item {
  bool real;
  int value;              // of a moment; of a product once it is placed
  int level = 0;          // above the moments
  Factor x = 0, y = 0;    // of a product; x is not conjugated
};

struct Terms {
  std::vector<double> coefficients;
  std::vector<std::pair<int, double>> functions;    // B functions, how much of each
};

struct Row : Terms {
  std::vector<Factor> factors;
};

/// Finds the products of rows.
class Cover {
 public:
  explicit Cover(AceSpeciesPlan &plan) : plan(plan) {}

  /// @param value  of a real moment, or of the real part of a complex one
  Factor moment(int value, bool real, bool conjugated)
  {
    const auto [found, added] = moments.try_emplace(value, static_cast<int>(items.size()));
    if (added) items.push_back({real, value});
    return static_cast<Factor>(2 * found->second + (conjugated && !real));
  }

  void add(std::vector<Factor> factors, const Terms &terms)
  {
    // A row and its conjugate have the same real part.
    std::vector<Factor> other;
    for (const Factor f : factors) other.push_back(conjugate(f));
    std::ranges::sort(factors);
    std::ranges::sort(other);
    Terms &to = distinct[std::min(factors, other)];
    to.coefficients.resize(terms.coefficients.size());
    for (std::size_t p = 0; p < terms.coefficients.size(); ++p)
      to.coefficients[p] += terms.coefficients[p];
    to.functions.insert(to.functions.end(), terms.functions.begin(), terms.functions.end());
  }

  void finish()
  {
    for (auto &[factors, terms] : distinct) rows.push_back({std::move(terms), factors});
    distinct.clear();
    for (std::size_t r = 0; r < rows.size(); ++r) count(static_cast<int>(r), 1);
    while (!queue.empty()) {
      const auto [n, inverse] = queue.top();
      queue.pop();
      const std::uint64_t key = ~inverse;
      Candidates &found = candidates[key];
      if (found.count < n) {
        if (found.count > 0) queue.emplace(found.count, inverse);
        continue;
      }
      replace(key, found);
    }
    place_products();
    place_rows();
  }

 private:
  /// Rows that have a pair; some of them may have it no longer.
  struct Candidates {
    int count = 0;
    Factor product = 0;    // what stands for it; 0 where there is none yet
    std::vector<int> rows;
  };
  struct Pair {
    Factor x, y;
    bool conjugated;    // whether it is the conjugate of x y
    std::uint64_t key() const { return static_cast<std::uint64_t>(x) << 32 | y; }
  };

  bool is_real(Factor f) const { return items[f / 2].real; }
  Factor conjugate(Factor f) const { return is_real(f) ? f : f ^ 1U; }

  /// A pair in one form: real ones first, then by number, the first not conjugated.
  Pair pair_of(Factor f, Factor g) const
  {
    if (std::tuple(!is_real(g), g / 2, g) < std::tuple(!is_real(f), f / 2, f)) std::swap(f, g);
    const bool turned = is_real(f) ? (g & 1U) != 0 : (f & 1U) != 0;
    if (turned) f = conjugate(f), g = conjugate(g);
    return {f, g, turned};
  }

  void count(int r, int change)
  {
    const std::vector<Factor> &factors = rows[r].factors;
    std::vector<std::uint64_t> keys;
    for (std::size_t i = 0; i < factors.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) keys.push_back(pair_of(factors[j], factors[i]).key());
    std::ranges::sort(keys);
    keys.erase(std::ranges::unique(keys).begin(), keys.end());
    for (const std::uint64_t key : keys) {
      Candidates &found = candidates[key];
      found.count += change;
      if (change < 0) continue;
      if (factors.size() > 2) found.rows.push_back(r);
      queue.emplace(found.count, ~key);
    }
  }

  /// Put one factor for a pair in all rows that have more than two factors.
  void replace(std::uint64_t key, Candidates &found)
  {
    const std::vector<int> with = std::exchange(found.rows, {});
    for (const int r : with) {
      std::vector<Factor> &factors = rows[r].factors;
      if (factors.size() < 3) continue;
      for (std::size_t i = 0; i < factors.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) {
          const Pair pair = pair_of(factors[j], factors[i]);
          if (pair.key() != key) continue;
          const Factor product = product_of(pair);
          count(r, -1);
          factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(i));
          factors[j] = pair.conjugated ? conjugate(product) : product;
          count(r, 1);
          i = factors.size();
          break;
        }
    }
  }

  Factor product_of(const Pair &pair)
  {
    Factor &product = candidates[pair.key()].product;
    if (product == 0) {
      product = static_cast<Factor>(2 * items.size());
      items.push_back({is_real(pair.x) && is_real(pair.y), -1,
                       1 + std::max(items[pair.x / 2].level, items[pair.y / 2].level), pair.x,
                       pair.y});
    }
    return product;
  }

  AceProductKind kind_of(Factor x, Factor y) const
  {
    if (is_real(x)) return is_real(y) ? AceProductKind::real : AceProductKind::mixed;
    return (y & 1U) != 0 ? AceProductKind::conjugate : AceProductKind::complex;
  }

  /// Products by level, those of a kind and first factor together.
  void place_products()
  {
    std::vector<int> order;
    for (std::size_t k = 0; k < items.size(); ++k)
      if (items[k].level > 0) order.push_back(static_cast<int>(k));
    const auto rank = [&](int k) {
      return std::tuple(items[k].level, kind_of(items[k].x, items[k].y), items[k].x, items[k].y);
    };
    std::ranges::sort(order, [&](int i, int j) { return rank(i) < rank(j); });
    plan.nvalues = plan.nmoments;
    for (const int k : order) {
      Item &item = items[k];
      item.value = plan.nvalues;
      plan.nvalues += item.real ? 1 : 2;
      plan.products.push_back(
          {kind_of(item.x, item.y), item.value, items[item.x / 2].value, items[item.y / 2].value});
    }
  }

  void place_rows()
  {
    std::map<std::pair<AceProductKind, int>, int> uses;
    std::vector<std::tuple<AceProductKind, int, int, const Row *>> products;
    const auto add_single = [&](const Row &row, Factor factor) {
      plan.single.push_back(items[factor / 2].value);
      plan.single_coefficients.insert(plan.single_coefficients.end(), row.coefficients.begin(),
                                      row.coefficients.end());
      add_functions(row);
    };
    for (const Row &row : rows) {
      if (row.factors.size() == 1) {
        add_single(row, row.factors[0]);
        continue;
      }
      const Pair pair = pair_of(row.factors[0], row.factors[1]);
      if (const Factor product = candidates[pair.key()].product; product != 0) {
        add_single(row, product);
        continue;
      }
      AceProductKind kind = kind_of(pair.x, pair.y);
      if (kind == AceProductKind::mixed) kind = AceProductKind::real;    // of the real part
      const int x = items[pair.x / 2].value, y = items[pair.y / 2].value;
      products.emplace_back(kind, x, y, &row);
      ++uses[{kind, x}];
      ++uses[{kind, y}];
    }
    for (auto &[kind, x, y, row] : products)
      if (uses[{kind, y}] > uses[{kind, x}]) std::swap(x, y);
    std::ranges::sort(products);
    for (const auto &[kind, x, y, row] : products) {
      if (plan.runs.empty() || plan.runs.back().kind != kind || plan.runs.back().x != x)
        plan.runs.push_back({kind, x, static_cast<int>(plan.y.size()), 0});
      ++plan.runs.back().count;
      plan.y.push_back(y);
      plan.coefficients.insert(plan.coefficients.end(), row->coefficients.begin(),
                               row->coefficients.end());
      add_functions(*row);
    }
    plan.first.push_back(static_cast<int>(plan.functions.size()));
  }

  void add_functions(const Row &row)
  {
    plan.first.push_back(static_cast<int>(plan.functions.size()));
    for (const auto &[function, cg] : row.functions) {
      plan.functions.push_back(function);
      plan.gen_cgs.push_back(cg);
    }
  }

  AceSpeciesPlan &plan;
  std::vector<Item> items = {{true, -1}};    // the first one stands for none
  std::map<int, int> moments;
  std::map<std::vector<Factor>, Terms> distinct;
  std::vector<Row> rows;
  std::unordered_map<std::uint64_t, Candidates> candidates;
  std::priority_queue<std::pair<int, std::uint64_t>> queue;
};

/// Where the moments of functions are, by slot, degree and n, which is -k for g_k itself.
using Place = std::tuple<int, int, int>;
using Places = std::map<Place, int>;

/// The radial functions of neighbors of a species.
AceNeighborPlan neighbor_plan(const AceNetwork &network, int a, int b, int ndensity,
                              const Places &places)
{
  const AceSpecies &species = network.species[a];
  const AceBond &bond = network.bond(a, b);
  const int nl = network.l_max + 1, slot = network.grace() ? 0 : b;
  AceNeighborPlan result{b, 0, 0, {}, {}};
  std::vector<std::vector<double>> functions;    // [nbase] each
  const auto radial = [&](int n, int l, double factor) {
    std::vector<double> row(bond.nbase, 0.0);
    if (n < 0) {
      if (-n <= bond.nbase) row[-n - 1] = 1.0;
      return row;
    }
    if (network.grace()) factor *= network.chemical[b * network.nradial + n - 1];
    for (int k = 0; k < bond.nbase; ++k)
      row[k] = factor * bond.crad[(static_cast<std::size_t>(n - 1) * nl + l) * network.nbase + k];
    return row;
  };

  std::vector<std::vector<double>> sums(ndensity, std::vector<double>(bond.nbase, 0.0));
  bool any = false;
  for_ace_rows(species, [&](const std::vector<AceFactor> &row, const double *c) {
    if (row.size() > 1 || (!network.grace() && row[0].mu != b)) return;
    any = true;
    const std::vector<double> function = radial(network.grace() ? row[0].n : -row[0].n, 0, 1.0);
    for (int p = 0; p < ndensity; ++p)
      for (int k = 0; k < bond.nbase; ++k) sums[p][k] += c[p] * function[k];
  });
  if (any) {
    functions = sums;
    result.groups.push_back({0, ndensity, 0});
  }
  for (const auto &[key, first] : places) {
    const auto &[of, l, n] = key;
    if (of != slot) continue;
    if (result.groups.empty() || result.groups.back().degree != l ||
        (l == 0 && result.groups.back().first == 0))
      result.groups.push_back({l, 0, first});
    ++result.groups.back().nfunctions;
    result.degree = l;
    // Harmonics of the engine are orthonormal.
    functions.push_back(radial(n, l, l > 0 ? std::sqrt(4.0 * std::numbers::pi) : 1.0));
  }
  result.nfunctions = static_cast<int>(functions.size());
  for (int k = 0; k < bond.nbase; ++k)
    for (const std::vector<double> &function : functions) result.crad.push_back(function[k]);
  return result;
}

}    // namespace

AceSpeciesPlan ace_plan(const AceNetwork &network, int a, const std::vector<bool> &present)
{
  const AceSpecies &species = network.species[a];
  AceSpeciesPlan plan;
  plan.ndensity = species.ndensity();
  const bool has_grade = species.has_grade();
  if (has_grade) plan.nfunctions = static_cast<int>(species.rank.size());
  const auto takes_part = [&](const std::vector<AceFactor> &row) {
    return (row.size() > 1 || has_grade) &&
           (network.grace() ||
            std::ranges::all_of(row, [&](const AceFactor &f) { return present[f.mu]; }));
  };
  const auto place_of = [&](const std::vector<AceFactor> &row, const AceFactor &f) {
    return Place(f.mu, f.l, row.size() == 1 && !network.grace() ? -f.n : f.n);
  };
  Places places;
  for_ace_rows(species, [&](const std::vector<AceFactor> &row, const double *) {
    if (!takes_part(row)) return;
    for (const AceFactor &factor : row) places[place_of(row, factor)] = 0;
  });
  plan.nmoments = plan.ndensity;
  for (auto &[key, first] : places) {
    first = plan.nmoments;
    plan.nmoments += 2 * std::get<1>(key) + 1;
  }
  for (int b = 0; b < network.nspecies(); ++b)
    if (present[b]) plan.neighbors.push_back(neighbor_plan(network, a, b, plan.ndensity, places));

  std::vector<int> function_of;    // [sum of rows]
  for (std::size_t f = 0; f < species.rows.size(); ++f)
    function_of.insert(function_of.end(), species.rows[f], static_cast<int>(f));
  Cover cover(plan);
  for_ace_rows(species, [&](const std::vector<AceFactor> &row, const double *c) {
    if (!takes_part(row)) return;
    std::vector<Factor> factors;
    double factor = 1.0;
    int roots = 0;    // of 1/2: together, as they would be off by the same in all rows
    for (const AceFactor &of : row) {
      const int first = places[place_of(row, of)], m = of.m, size = std::abs(m);
      if (size % 2 == 1 && (m < 0 || network.grace())) factor = -factor;
      if (network.grace()) {
        const int component = m == 0 ? 0 : m > 0 ? 2 * size - 1 : 2 * size;
        factors.push_back(cover.moment(first + component, true, false));
      } else {
        roots += m != 0;
        factors.push_back(cover.moment(first + (m == 0 ? 0 : 2 * size - 1), m == 0, m < 0));
      }
    }
    factor = std::ldexp(factor, -roots / 2) * (roots % 2 == 1 ? std::numbers::sqrt2 / 2.0 : 1.0);
    Terms terms{std::vector<double>(plan.ndensity, 0.0), {}};
    if (row.size() > 1)    // densities begin with rank 1
      for (int p = 0; p < plan.ndensity; ++p) terms.coefficients[p] = factor * c[p];
    if (has_grade) {
      const std::ptrdiff_t k = (c - species.coefficients.data()) / plan.ndensity;
      terms.functions.emplace_back(function_of[k], factor * species.gen_cgs[k]);
    }
    cover.add(std::move(factors), terms);
  });
  cover.finish();
  return plan;
}

}    // namespace pwmlff
