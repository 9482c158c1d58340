// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_ace.h"

#include "../../core/periodic_table.h"
#include "../../core/printable.h"
#include "ace_file.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

constexpr std::size_t MOST_COEFFICIENTS = std::size_t{1} << 25;

int index_of(const char *const *names, int count, std::string_view name)
{
  for (int k = 0; k < count; ++k)
    if (names[k] == name) return k;
  return -1;
}

/// What names a file's first key, before a colon or an equals sign.
std::string_view first_key(std::string_view text)
{
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n{"), text.size()));
    if (!text.starts_with('#') && !text.starts_with("---")) break;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  const std::size_t end = text.find_first_of(":= \n");
  if (end == std::string_view::npos || (text[end] != ':' && text[end] != '=')) return {};
  return text.substr(0, end);
}

/// Give the bonds one shape, and have all of them in order.
void join_bonds(AceFile &file)
{
  AceNetwork &network = file.network;
  const int n = static_cast<int>(file.elements.size()), nbonds = file.grace ? 1 : n;
  for (const auto &[pair, bond] : file.bonds) {
    if (std::max(pair[0], pair[1]) >= nbonds)
      throw std::runtime_error("cannot be read as an ACE: found the bond [" +
                               std::to_string(pair[0]) + ", " + std::to_string(pair[1]) + "] and " +
                               std::to_string(n) +
                               " elements, expected bonds of these; write it again");
    network.nradial = std::max(network.nradial, bond.nradial);
    network.l_max = std::max(network.l_max, bond.l_max);
    network.nbase = std::max(network.nbase, bond.bond.nbase);
    if (bond.inner != file.bonds.begin()->second.inner)
      not_evaluated("its bonds have the inner_cutoff_type " +
                    printable(file.bonds.begin()->second.inner) + " and " + printable(bond.inner) +
                    ", of which other programs take the one they read last, expected one; fit it "
                    "with one for all bonds");
  }
  const std::size_t ncrad =
      static_cast<std::size_t>(network.nradial) * (network.l_max + 1) * network.nbase;
  if (ncrad * nbonds * nbonds > MOST_COEFFICIENTS)
    not_evaluated("its bonds, brought to one shape, have " +
                  std::to_string(ncrad * nbonds * nbonds) + " radcoefficients, expected up to " +
                  std::to_string(MOST_COEFFICIENTS) + "; fit it with bonds of one shape");
  for (int a = 0; a < nbonds; ++a)
    for (int b = 0; b < nbonds; ++b) {
      const auto found = file.bonds.find({a, b});
      if (found == file.bonds.end())
        not_evaluated("it has no bond [" + std::to_string(a) + ", " + std::to_string(b) +
                      "], expected one of each ordered pair of elements; fit it with all of them");
      AceBond bond = found->second.bond;
      const int nradial = found->second.nradial, nl = found->second.l_max + 1;
      std::vector<double> crad(ncrad, 0.0);
      for (int f = 0; f < nradial; ++f)
        for (int l = 0; l < nl; ++l)
          std::copy_n(
              &bond.crad[(static_cast<std::size_t>(f) * nl + l) * bond.nbase], bond.nbase,
              &crad[(static_cast<std::size_t>(f) * (network.l_max + 1) + l) * network.nbase]);
      if (file.grace)
        for (double &c : crad) c *= file.nnorm;
      bond.crad = std::move(crad);
      network.bonds.push_back(std::move(bond));
    }
  network.inner = file.grace ? AceInner::none : inner_of(file.bonds.begin()->second.inner);
}

void join_species(AceFile &file)
{
  AceNetwork &network = file.network;
  const int n = network.nspecies();
  const auto other = [&](const std::string &what, std::size_t found) {
    throw std::runtime_error("cannot be read as an ACE: found " + what + " of " +
                             std::to_string(found) + " elements, expected those of " +
                             std::to_string(n) + "; write it again");
  };
  if (file.grace) network.species.assign(n, network.species[0]);
  else if (static_cast<int>(file.embeddings.size()) != n ||
           static_cast<int>(network.species.size()) != n)
    other("embeddings", file.embeddings.size());
  if (static_cast<int>(network.energy.size()) != n) other("E0", network.energy.size());
  if (!file.functions.empty() && file.functions.rbegin()->first >= n)
    other("functions", file.functions.rbegin()->first + 1);
  if (!file.inverse.empty() && file.inverse.rbegin()->first >= n)
    other("active sets", file.inverse.rbegin()->first + 1);
  for (int s = 0; s < n; ++s) {
    AceSpecies &to = network.species[s];
    for (double &weight : to.weight) weight *= file.scale;
    network.energy[s] += file.shift;
    if (!file.functions.contains(s)) continue;
    for (const int ndensity : file.ndensity[s])
      if (ndensity != to.ndensity())
        throw std::runtime_error("cannot be read as an ACE: found a function of " +
                                 std::to_string(ndensity) + " densities, expected the " +
                                 std::to_string(to.ndensity()) +
                                 " of the embedding; write it again");
    AceSpecies &from = file.functions[s];
    to.rank = std::move(from.rank);
    to.rows = std::move(from.rows);
    to.mus = std::move(from.mus);
    to.ns = std::move(from.ns);
    to.ls = std::move(from.ls);
    to.ms = std::move(from.ms);
    to.coefficients = std::move(from.coefficients);
    if (!file.inverse.contains(s)) continue;
    to.gen_cgs = std::move(from.gen_cgs);
    to.inverse = std::move(file.inverse[s]);
  }
}

}    // namespace

void not_evaluated(const std::string &what)
{
  throw std::invalid_argument("is an ACE that is not evaluated here: " + what);
}

AceRadial radial_of(std::string_view name)
{
  if (name.starts_with("ACE.jl"))
    not_evaluated("its radial functions are '" + printable(name) +
                  "' of ACE.jl, expected ChebExpCos, ChebPow, ChebLinear or SBessel; run it with "
                  "pair_style pace of a LAMMPS with ML-PACE");
  const int k = name == "TEST_SBessel" ? 3 : index_of(ACE_RADIALS, 4, name);
  if (k < 0)
    not_evaluated("its radial functions are '" + printable(name) +
                  "', expected ChebExpCos, ChebPow, ChebLinear or SBessel; run it with the program "
                  "that made it");
  return static_cast<AceRadial>(k);
}

AceEmbedding embedding_of(std::string_view name)
{
  const int k = index_of(ACE_EMBEDDINGS, 2, name);
  if (k < 0)
    not_evaluated("its embedding (npoti) is '" + printable(name) +
                  "', expected FinnisSinclair or FinnisSinclairShiftedScaled; fit it with one of "
                  "these");
  return static_cast<AceEmbedding>(k);
}

AceInner inner_of(std::string_view name)
{
  const int k = index_of(ACE_INNERS, 3, name);
  if (k < 0)
    not_evaluated("its inner_cutoff_type is '" + printable(name) +
                  "', expected density, distance or zbl; fit it with one of these");
  return static_cast<AceInner>(k);
}

void set_fs_parameters(AceSpecies &species, const std::vector<double> &parameters, int ndensity)
{
  if (ndensity < 1 || parameters.size() != 2 * static_cast<std::size_t>(ndensity))
    not_evaluated("its Finnis-Sinclair parameters are " + std::to_string(parameters.size()) +
                  " for " + std::to_string(ndensity) +
                  " densities, expected two for each; fit it again, or write it again");
  species.weight.clear();
  species.power.clear();
  for (int p = 0; p < ndensity; ++p) {
    species.weight.push_back(parameters[2 * p]);
    species.power.push_back(parameters[2 * p + 1]);
  }
}

AceSpecies &species_of(AceFile &file, int k)
{
  std::vector<AceSpecies> &all = file.network.species;
  if (static_cast<int>(all.size()) <= k) all.resize(k + 1);
  return all[k];
}

bool looks_like_ace(std::string_view contents)
{
  const std::string_view key = first_key(contents);
  for (const char *name :
       {"elements", "E0", "deltaSplineBins", "embeddings", "bonds", "functions", "emb_spec",
        "radial_basis", "nnorm", "nelements", "global", "species", "metadata", "auxdata", "lmax"})
    if (key == name) return true;
  return false;
}

AceNetwork read_ace(std::string_view contents)
{
  AceFile file;
  if (first_key(contents) == "nelements") read_text(contents, file);
  else read_yaml(contents, file);
  for (const std::string &name : file.elements) {
    const auto found = std::find(ELEMENT_SYMBOLS.begin() + 1, ELEMENT_SYMBOLS.end(), name);
    if (found == ELEMENT_SYMBOLS.end())
      throw std::runtime_error("cannot be read as an ACE: found the element '" + printable(name) +
                               "', expected symbols like Hf; write them as in the periodic table");
    file.network.atom_type.push_back(static_cast<int>(found - ELEMENT_SYMBOLS.begin()));
  }
  join_bonds(file);
  join_species(file);
  check_ace(file.network);
  return std::move(file.network);
}

}    // namespace pwmlff
