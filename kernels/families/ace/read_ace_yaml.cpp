// SPDX-License-Identifier: GPL-2.0-or-later

#include "../../core/printable.h"
#include "ace_file.h"
#include "yaml.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace pwmlff {
namespace {

/// A key of a map, and what takes its value.
struct Field {
  const char *key;
  std::function<void()> read;
};

/// Read a map with these keys, the first `needed` of which have to be there, all of them once.
/// What else there is has no meaning. @return which were there
std::vector<bool> read_fields(Yaml &yaml, const std::string &what, std::size_t needed,
                              const std::vector<Field> &fields)
{
  std::vector<bool> seen(fields.size());
  yaml.map([&](std::string_view key) {
    const auto found = std::ranges::find(fields, key, &Field::key);
    if (found == fields.end()) return yaml.skip();
    if (seen[found - fields.begin()]) yaml.fail("'" + printable(key) + "' twice", "keys once");
    seen[found - fields.begin()] = true;
    found->read();
  });
  for (std::size_t k = 0; k < needed; ++k)
    if (!seen[k]) yaml.fail(what + " without '" + fields[k].key + "'", "it there");
  return seen;
}

void read_embedding(Yaml &yaml, AceFile &file, int s)
{
  AceSpecies &species = species_of(file, s);
  if (!file.embeddings.insert(s).second) yaml.fail("an embedding twice", "one of each element");
  std::vector<double> parameters;
  int ndensity = 0;
  read_fields(yaml, "an embedding", 5,
              {{"ndensity", [&] { ndensity = yaml.integer(1, ACE_MOST_FUNCTIONS); }},
               {"FS_parameters", [&] { yaml.numbers(parameters); }},
               {"npoti", [&] { species.embedding = embedding_of(yaml.word()); }},
               {"rho_core_cutoff", [&] { species.core_cutoff = yaml.number(true); }},
               {"drho_core_cutoff", [&] { species.core_width = yaml.number(); }}});
  set_fs_parameters(species, parameters, ndensity);
}

void read_bond(Yaml &yaml, AceFile &file, std::string_view pair)
{
  const std::vector<int> species = yaml.key_integers(pair, 2, ACE_MOST_ELEMENTS - 1);
  const auto [found, added] = file.bonds.try_emplace({species[0], species[1]});
  if (!added) yaml.fail("the bond '" + printable(pair) + "' twice", "bonds once");
  FileBond &read = found->second;
  AceBond &bond = read.bond;
  std::vector<double> parameters;
  const auto number = [&](const char *key, double &to) {
    return Field{key, [&] { to = yaml.number(); }};
  };
  read_fields(yaml, "a bond", 10,
              {{"nradmax", [&] { read.nradial = yaml.integer(0, ACE_MOST_FUNCTIONS); }},
               {"lmax", [&] { read.l_max = yaml.integer(0, ACE_MOST_DEGREE); }},
               {"nradbasemax", [&] { bond.nbase = yaml.integer(1, ACE_MOST_FUNCTIONS); }},
               {"radbasename", [&] { bond.radial = radial_of(yaml.word()); }},
               {"radparameters", [&] { yaml.numbers(parameters); }},
               {"radcoefficients", [&] { yaml.numbers(bond.crad); }},
               number("prehc", bond.prehc),
               number("lambdahc", bond.lambdahc),
               number("rcut", bond.rcut),
               number("dcut", bond.dcut),
               number("rcut_in", bond.rcut_in),
               number("dcut_in", bond.dcut_in),
               {"inner_cutoff_type", [&] { read.inner = yaml.word(); }}});
  if (parameters.empty()) yaml.fail("no radparameters", "lambda there");
  bond.lambda = parameters[0];
  const std::size_t expected =
      static_cast<std::size_t>(read.nradial) * (read.l_max + 1) * bond.nbase;
  if (bond.crad.size() != expected)
    yaml.fail(std::to_string(bond.crad.size()) + " radcoefficients",
              std::to_string(expected) + ", nradmax (lmax + 1) nradbasemax");
}

/// A function of pacemaker, or of GRACE/FS: gen_cgs times coeff are its coefficients. That of
/// pacemaker has gen_cgs too where it is a B function.
void read_function(Yaml &yaml, AceFile &file, int s)
{
  AceSpecies &to = file.functions[s];
  int rank = -1, n = 0, ndensity = 0;
  std::int64_t nrows = -1;
  std::vector<int> mus, ns, ls, ms;
  std::vector<double> coefficients, gen_cgs, coeff;
  const auto read_ns = [&] {
    if (yaml.is_sequence()) yaml.integers(ns, 1, ACE_MOST_FUNCTIONS);
    else n = yaml.integer(1, ACE_MOST_FUNCTIONS);
  };
  const std::vector<bool> seen =
      read_fields(yaml, "a function", 5,
                  {{"mu0", [&] { yaml.integer(s, s); }},
                   {"ndensity", [&] { ndensity = yaml.integer(1, ACE_MOST_FUNCTIONS); }},
                   {"ns", read_ns},
                   {"ls", [&] { yaml.integers(ls, 0, ACE_MOST_DEGREE); }},
                   {"ms_combs", [&] { yaml.integers(ms, -ACE_MOST_DEGREE, ACE_MOST_DEGREE); }},
                   {"gen_cgs", [&] { yaml.numbers(gen_cgs); }},
                   {"coeff", [&] { yaml.numbers(coeff); }},
                   {"rank", [&] { rank = yaml.integer(1, ACE_MOST_RANK); }},
                   {"num_ms_combs", [&] { nrows = yaml.integer(0, 1 << 24); }},
                   {"mus", [&] { yaml.integers(mus, 0, ACE_MOST_ELEMENTS - 1); }},
                   {"ctildes", [&] { yaml.numbers(coefficients); }}});
  const auto size = [](const auto &list) { return static_cast<std::int64_t>(list.size()); };
  if (seen[6]) {
    rank = static_cast<int>(std::min<std::int64_t>(size(ls), ACE_MOST_RANK + 1));
    nrows = size(gen_cgs);
    mus.assign(rank, 0);
    ns.assign(rank, n);
    for (const double cg : gen_cgs)
      for (const double c : coeff) coefficients.push_back(cg * c);
  }
  if (rank < 1 || rank > ACE_MOST_RANK || size(mus) != rank || size(ns) != rank ||
      size(ls) != rank || size(ms) != rank * nrows || size(coefficients) != nrows * ndensity ||
      (seen[5] && size(gen_cgs) != nrows))
    yaml.fail("a function of rank " + std::to_string(rank) + " with " + std::to_string(size(ns)) +
                  " ns, " + std::to_string(size(ls)) + " ls, " + std::to_string(size(ms)) +
                  " ms_combs and " + std::to_string(size(coefficients)) + " coefficients",
              "as many as its rank, num_ms_combs and ndensity say");
  to.rank.push_back(rank);
  to.rows.push_back(static_cast<int>(nrows));
  to.mus.insert(to.mus.end(), mus.begin(), mus.end());
  to.ns.insert(to.ns.end(), ns.begin(), ns.end());
  to.ls.insert(to.ls.end(), ls.begin(), ls.end());
  to.ms.insert(to.ms.end(), ms.begin(), ms.end());
  to.coefficients.insert(to.coefficients.end(), coefficients.begin(), coefficients.end());
  to.gen_cgs.insert(to.gen_cgs.end(), gen_cgs.begin(), gen_cgs.end());
  file.ndensity[s].push_back(ndensity);
}

void read_radial_basis(Yaml &yaml, AceFile &file)
{
  FileBond &read = file.bonds[{0, 0}];
  AceBond &bond = read.bond;
  std::vector<double> &z = file.network.chemical;
  std::vector<int> shape, z_shape;
  read_fields(yaml, "radial_basis", 6,
              {{"radbasename", [&] { bond.radial = radial_of(yaml.word()); }},
               {"crad_shape", [&] { yaml.integers(shape, 1, ACE_MOST_FUNCTIONS); }},
               {"Z_shape", [&] { yaml.integers(z_shape, 1, ACE_MOST_FUNCTIONS); }},
               {"crad", [&] { yaml.numbers(bond.crad); }},
               {"Z", [&] { yaml.numbers(z); }},
               {"cutoff", [&] { bond.rcut = yaml.number(); }}});
  if (bond.radial != AceRadial::sbessel)
    not_evaluated("its radial functions are not SBessel, expected that in a file of GRACE/FS; run "
                  "it with the program that made it");
  const auto product = [](const std::vector<int> &of) {
    return std::accumulate(of.begin(), of.end(), std::size_t{1}, std::multiplies<>());
  };
  if (shape.size() != 3 || shape[1] > ACE_MOST_DEGREE + 1 || product(shape) != bond.crad.size() ||
      z_shape.size() != 2 || z_shape[1] != shape[0] || product(z_shape) != z.size())
    yaml.fail("crad and Z of other sizes", "those of crad_shape [nradmax, lmax + 1, n_rad_base], "
                                           "lmax at most 8, and Z_shape [elements, nradmax]");
  read.nradial = shape[0];
  read.l_max = shape[1] - 1;
  bond.nbase = shape[2];
}

}    // namespace

void read_yaml(std::string_view contents, AceFile &file)
{
  Yaml yaml(contents);
  AceNetwork &network = file.network;
  const auto by_species = [&](const auto &read) {
    yaml.map(
        [&](std::string_view key) { read(yaml.key_integers(key, 1, ACE_MOST_ELEMENTS - 1)[0]); });
  };
  const auto read_functions = [&](int s) {
    if (file.functions.contains(s)) yaml.fail("functions twice", "those of an element once");
    file.functions[s];
    yaml.sequence([&] { read_function(yaml, file, s); });
  };
  const auto read_inverse = [&](int s) {
    if (file.inverse.contains(s)) yaml.fail("an active set twice", "that of an element once");
    yaml.numbers(file.inverse[s]);
  };
  const auto read_emb_spec = [&] {
    AceSpecies &species = species_of(file, 0);
    std::vector<double> parameters;
    read_fields(yaml, "emb_spec", 2,
                {{"type", [&] { species.embedding = embedding_of(yaml.word()); }},
                 {"params", [&] { yaml.numbers(parameters); }}});
    set_fs_parameters(species, parameters, static_cast<int>(parameters.size() / 2));
  };
  const auto refuse_training = [] {
    not_evaluated("it holds B functions of a training, expected those of a .yace; convert it with "
                  "'pwmlff convert', or with pace_yaml2yace");
  };
  const auto refuse_pairs = [] { radial_of("ACE.jl.Basic"); };
  const std::vector<bool> seen = read_fields(
      yaml, "a file", 2,
      {{"elements", [&] { yaml.sequence([&] { file.elements.emplace_back(yaml.word()); }); }},
       {"functions", [&] { by_species(read_functions); }},
       {"emb_spec", read_emb_spec},
       {"radial_basis", [&] { read_radial_basis(yaml, file); }},
       {"E0", [&] { yaml.numbers(network.energy); }},
       {"deltaSplineBins", [&] { network.delta = yaml.number(); }},
       {"embeddings", [&] { by_species([&](int s) { read_embedding(yaml, file, s); }); }},
       {"bonds", [&] { yaml.map([&](auto pair) { read_bond(yaml, file, pair); }); }},
       {"scale", [&] { file.scale = yaml.number(); }},
       {"shift", [&] { file.shift = yaml.number(); }},
       {"nnorm", [&] { file.nnorm = yaml.number(); }},
       {"active_set", [&] { by_species(read_inverse); }},
       {"global", refuse_training},
       {"species", refuse_training},
       {"polypairpot", refuse_pairs},
       {"reppot", refuse_pairs}});
  yaml.expect_end();
  file.grace = seen[2] || seen[3];
  for (const auto &[key, needed] : {std::pair{2, file.grace},
                                    {3, file.grace},
                                    {4, !file.grace},
                                    {5, !file.grace},
                                    {6, !file.grace},
                                    {7, !file.grace}})
    if (needed && !seen[key]) {
      constexpr const char *names[] = {"emb_spec",        "radial_basis", "E0",
                                       "deltaSplineBins", "embeddings",   "bonds"};
      yaml.fail(std::string("a file without '") + names[key - 2] + "'", "it there");
    }
  if (!file.grace) return;
  network.delta = 0.001;
  if (!seen[4]) network.energy.assign(file.elements.size(), 0.0);
}

}    // namespace pwmlff
