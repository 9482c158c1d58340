// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_ace.h"

#include "../../core/periodic_table.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace pwmlff {
namespace {

constexpr double LARGEST_CUTOFF = 100.0;

/// Calls work(name, vector) for the whole numbers of a species, then for the others.
template <class Species, class Work> void for_arrays(Species &species, const Work &work)
{
  work("rank", species.rank);
  work("rows", species.rows);
  work("mus", species.mus);
  work("ns", species.ns);
  work("ls", species.ls);
  work("ms", species.ms);
  work("coefficients", species.coefficients);
  work("gen_cgs", species.gen_cgs);
  work("inverse", species.inverse);
  work("weight", species.weight);
  work("power", species.power);
}

constexpr double AceBond::*BOND_NUMBERS[] = {&AceBond::lambda,  &AceBond::rcut,    &AceBond::dcut,
                                             &AceBond::rcut_in, &AceBond::dcut_in, &AceBond::prehc,
                                             &AceBond::lambdahc};

}    // namespace

void check_ace(const AceNetwork &network)
{
  const auto refuse = [](const std::string &found, const std::string &expected) {
    throw std::runtime_error("cannot be read as an ACE: found " + found + ", expected " + expected +
                             "; write it again with the program that made it");
  };
  const int n = network.nspecies();
  const std::set<int> distinct(network.atom_type.begin(), network.atom_type.end());
  if (n == 0 || static_cast<int>(distinct.size()) != n)
    refuse(std::to_string(n) + " elements", "one or more, each once");
  if (network.grace() && static_cast<int>(network.chemical.size()) != n * network.nradial)
    refuse("another Z", "[elements, nradmax]");
  if (!(network.delta > 0.0)) refuse("a deltaSplineBins that is not positive", "like 0.001");
  for (const AceBond &bond : network.bonds) {
    const double bins = bond.rcut / network.delta;
    if (!(bond.rcut > 0.0 && bond.rcut <= LARGEST_CUTOFF && bins >= 2.0 && bins < ACE_MOST_BINS))
      refuse("a cutoff of " + std::to_string(bond.rcut) + " in bins of " +
                 std::to_string(network.delta),
             "up to 100 angstrom, and 2 to 100000 bins");
    if (bond.radial == AceRadial::cheb_exp_cos && !(std::abs(bond.lambda) > 1e-10))
      refuse("lambda 0 of ChebExpCos", "another");
    if (bond.radial == AceRadial::cheb_pow && !(bond.lambda > 0.0))
      refuse("lambda " + std::to_string(bond.lambda) + " of ChebPow", "more than 0");
    if (!(bond.dcut >= 0.0 && bond.dcut_in >= 0.0)) refuse("a dcut below 0", "0 or more");
    if (network.inner == AceInner::zbl && !(bond.dcut_in > 0.0))
      refuse("dcut_in 0 with inner_cutoff_type zbl, by which others divide", "more than 0");
    if (network.inner == AceInner::zbl && bond.prehc != 0.0 && !(bond.dcut > 0.0))
      refuse("dcut 0 with inner_cutoff_type zbl", "more than 0");
  }
  for (int s = 0; s < n; ++s) {
    const AceSpecies &species = network.species[s];
    const std::string of = " of element " + symbol(network.atom_type[s]);
    if (!(species.core_width >= 0.0)) refuse("a drho_core_cutoff below 0" + of, "0 or more");
    for (const double m : species.power)
      if (!(m > 0.0)) refuse("an exponent " + std::to_string(m) + of, "more than 0");
    std::size_t factors = 0, ms = 0, rows = 0;
    for (std::size_t f = 0; f < species.rank.size() && f < species.rows.size(); ++f) {
      factors += species.rank[f];
      rows += species.rows[f];
      ms += static_cast<std::size_t>(species.rank[f]) * species.rows[f];
      if (species.rank[f] < 1) refuse("a function of rank 0" + of, "ranks from 1");
    }
    if (species.rows.size() != species.rank.size() || species.mus.size() != factors ||
        species.ns.size() != factors || species.ls.size() != factors || species.ms.size() != ms ||
        species.coefficients.size() != rows * species.ndensity() || species.weight.empty() ||
        species.power.size() != species.weight.size())
      refuse("functions" + of + " of other sizes", "what their ranks and rows say");
    const std::size_t size = species.rank.size();
    const std::size_t larger = network.grace() ? size : size * species.ndensity();
    const std::size_t numbers = species.inverse.size();
    if (species.has_grade() != network.species[0].has_grade() ||
        (species.has_grade() && numbers != size * size && numbers != larger * larger))
      refuse("an active set" + of + " of " + std::to_string(numbers) + " numbers",
             "those of all elements or of none, the square of its " + std::to_string(size) +
                 " functions or of these times its densities");
    if (species.gen_cgs.size() != (species.has_grade() ? rows : 0))
      refuse(std::to_string(species.gen_cgs.size()) + " gen_cgs" + of,
             "one for each of its rows, where it has an active set");
    for_ace_rows(species, [&](const std::vector<AceFactor> &row, const double *) {
      for (const auto &[mu, k, l, m] : row) {
        const bool base = row.size() == 1 && !network.grace();
        if (mu >= n || k < 1 || k > (base ? network.nbase : network.nradial) || l > network.l_max ||
            std::abs(m) > l || (row.size() == 1 && l > 0) || (network.grace() && mu > 0))
          refuse("a function" + of + " with species " + std::to_string(mu) + ", n " +
                     std::to_string(k) + ", l " + std::to_string(l) + ", m " + std::to_string(m),
                 "species of the file, n and l up to those of the bonds, |m| up to l, and l 0 at "
                 "rank 1");
      }
    });
  }
}

Arrays ace_arrays(const AceNetwork &network)
{
  Arrays arrays("ace");
  arrays.set("atom_type", network.atom_type);
  arrays.set("energy", {network.energy.size()}, network.energy);
  arrays.set("inner", static_cast<int>(network.inner));
  arrays.set("delta", network.delta);
  std::vector<int> radial, nbase;
  std::vector<double> numbers, crad;
  for (const AceBond &bond : network.bonds) {
    radial.push_back(static_cast<int>(bond.radial));
    nbase.push_back(bond.nbase);
    for (const auto number : BOND_NUMBERS) numbers.push_back(bond.*number);
    crad.insert(crad.end(), bond.crad.begin(), bond.crad.end());
  }
  const std::size_t bonds = network.bonds.size(), k = network.nbase;
  arrays.set("radial", radial);
  arrays.set("nbase", nbase);
  arrays.set("bonds", {bonds, std::size(BOND_NUMBERS)}, numbers);
  arrays.set("crad",
             {bonds, static_cast<std::size_t>(network.nradial),
              static_cast<std::size_t>(network.l_max) + 1, k},
             crad);
  if (network.grace()) arrays.set("chemical", {network.chemical.size()}, network.chemical);
  for (int s = 0; s < network.nspecies(); ++s) {
    const AceSpecies &species = network.species[s];
    Arrays part("");
    part.set("embedding", static_cast<int>(species.embedding));
    part.set("core_cutoff", std::min(species.core_cutoff, 1e300));
    part.set("core_width", species.core_width);
    for_arrays(species, [&](const char *name, const auto &values) {
      part.set(name, {values.size()}, {values.begin(), values.end()});
    });
    arrays.add("species." + std::to_string(s) + ".", part);
  }
  return arrays;
}

AceNetwork ace_of(const Arrays &arrays)
{
  AceNetwork network;
  network.atom_type = arrays.integers("atom_type", 1, ACE_MOST_ELEMENTS);
  const int n = network.nspecies();
  network.energy = arrays.get("energy", {n}).values;
  network.inner = static_cast<AceInner>(arrays.integer("inner", 0, 3));
  network.delta = arrays.number("delta");
  const std::vector<int> radial = arrays.integers("radial", 0, 3);
  const std::ptrdiff_t bonds = static_cast<std::ptrdiff_t>(radial.size());
  const std::vector<int> nbase = arrays.integers("nbase", 1, ACE_MOST_FUNCTIONS);
  const std::vector<double> &numbers =
      arrays.get("bonds", {bonds, std::ssize(BOND_NUMBERS)}).values;
  const Array &crad = arrays.get("crad", {bonds, -1, -1, -1});
  const auto most = [&](std::size_t k, int limit) {
    return integer(static_cast<double>(crad.shape[k]), 0, limit, "a size of crad");
  };
  network.nradial = most(1, ACE_MOST_FUNCTIONS);
  network.l_max = most(2, ACE_MOST_DEGREE + 1) - 1;
  network.nbase = most(3, ACE_MOST_FUNCTIONS);
  if (arrays.has("chemical")) network.chemical = arrays.get("chemical", {-1}).values;
  if (static_cast<std::ptrdiff_t>(nbase.size()) != bonds || network.l_max < 0 ||
      bonds != (network.grace() ? 1 : n * n))
    throw std::runtime_error("has " + std::to_string(bonds) + " bonds, expected one of each pair");
  const std::size_t stride = crad.values.size() / std::max<std::ptrdiff_t>(bonds, 1);
  for (std::ptrdiff_t k = 0; k < bonds; ++k) {
    AceBond &bond = network.bonds.emplace_back();
    bond.radial = static_cast<AceRadial>(radial[k]);
    bond.nbase = std::min(nbase[k], network.nbase);
    for (std::size_t c = 0; c < std::size(BOND_NUMBERS); ++c)
      bond.*BOND_NUMBERS[c] = numbers[k * std::size(BOND_NUMBERS) + c];
    const auto first = crad.values.begin() + static_cast<std::ptrdiff_t>(k * stride);
    bond.crad.assign(first, first + static_cast<std::ptrdiff_t>(stride));
  }
  for (int s = 0; s < n; ++s) {
    const Arrays part = arrays.part("species." + std::to_string(s) + ".", "");
    AceSpecies &species = network.species.emplace_back();
    species.embedding = static_cast<AceEmbedding>(part.integer("embedding", 0, 1));
    species.core_cutoff = part.number("core_cutoff");
    species.core_width = part.number("core_width");
    for_arrays(species, [&](const std::string &name, auto &values) {
      if constexpr (std::is_same_v<decltype(values), std::vector<int> &>)
        values = part.integers(name, name == "ms" ? -ACE_MOST_DEGREE : 0,
                               name == "rows" ? 1 << 24 : ACE_MOST_FUNCTIONS);
      else values = part.get(name, {-1}).values;
    });
  }
  check_ace(network);
  return network;
}

}    // namespace pwmlff
