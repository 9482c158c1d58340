// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_ace.h"

#include "../../core/periodic_table.h"
#include "../../core/printable.h"
#include "yaml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pwmlff {
namespace {

constexpr int MOST_ELEMENTS = 118;
constexpr double LARGEST_CUTOFF = 100.0;
constexpr std::size_t MOST_COEFFICIENTS = std::size_t{1} << 25;

[[noreturn]] void not_evaluated(const std::string &what)
{
  throw std::invalid_argument("is an ACE that is not evaluated here: " + what);
}

/// A bond as it stands in a file: its coefficients have its own shape.
struct FileBond {
  AceBond bond;
  int nradial = 0, l_max = 0;
  std::string inner = "density";
};

/// What was read so far, and by which names.
struct AceFile {
  std::vector<std::string> elements;
  AceNetwork network;
  std::map<std::array<int, 2>, FileBond> bonds;
  std::set<int> embeddings;
  std::map<int, AceSpecies> functions;         // their rows alone
  std::map<int, std::vector<int>> ndensity;    // of each function
  // of GRACE/FS
  double scale = 1.0, shift = 0.0, nnorm = 1.0;
  bool grace = false, has_embedding = false;
};

int index_of(const char *const *names, int count, std::string_view name)
{
  for (int k = 0; k < count; ++k)
    if (names[k] == name) return k;
  return -1;
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

/* ---- YAML ---- */

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

AceSpecies &species_of(AceFile &file, int k)
{
  std::vector<AceSpecies> &all = file.network.species;
  if (static_cast<int>(all.size()) <= k) all.resize(k + 1);
  return all[k];
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
  const std::vector<int> species = yaml.key_integers(pair, 2, MOST_ELEMENTS - 1);
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

/// A function of pacemaker, or of GRACE/FS: gen_cgs times coeff are its coefficients.
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
                   {"mus", [&] { yaml.integers(mus, 0, MOST_ELEMENTS - 1); }},
                   {"ctildes", [&] { yaml.numbers(coefficients); }}});
  const auto size = [](const auto &list) { return static_cast<std::int64_t>(list.size()); };
  if (seen[5]) {
    rank = static_cast<int>(std::min<std::int64_t>(size(ls), ACE_MOST_RANK + 1));
    nrows = size(gen_cgs);
    mus.assign(rank, 0);
    ns.assign(rank, n);
    for (const double cg : gen_cgs)
      for (const double c : coeff) coefficients.push_back(cg * c);
  }
  if (rank < 1 || rank > ACE_MOST_RANK || size(mus) != rank || size(ns) != rank ||
      size(ls) != rank || size(ms) != rank * nrows || size(coefficients) != nrows * ndensity)
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

void read_yaml(std::string_view contents, AceFile &file)
{
  Yaml yaml(contents);
  AceNetwork &network = file.network;
  const auto by_species = [&](const auto &read) {
    yaml.map([&](std::string_view key) { read(yaml.key_integers(key, 1, MOST_ELEMENTS - 1)[0]); });
  };
  const auto read_functions = [&](int s) {
    if (file.functions.contains(s)) yaml.fail("functions twice", "those of an element once");
    file.functions[s];
    yaml.sequence([&] { read_function(yaml, file, s); });
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
                  "pace_yaml2yace");
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

/* ---- the older text ---- */

/// Words of a text, between which are blanks, = ( ) < > and colons.
class Words {
 public:
  explicit Words(std::string_view text) : text(text) {}

  std::string_view next()
  {
    constexpr std::string_view BETWEEN = " \t\r\n=()<>:";
    at = std::min(text.find_first_not_of(BETWEEN, at), text.size());
    const std::size_t first = at;
    at = std::min(text.find_first_of(BETWEEN, at), text.size());
    return text.substr(first, at - first);
  }
  bool is_next(std::string_view word)
  {
    const std::size_t here = at;
    const bool same = next() == word;
    at = here;
    return same;
  }
  /// Several words behind each other.
  void expect(std::initializer_list<const char *> words)
  {
    for (const char *word : words)
      if (const std::string_view found = next(); found != word) fail(found, word);
  }
  double number()
  {
    const std::string_view word = next();
    double value = 0.0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
      fail(word, "a finite number");
    return value;
  }
  int integer(int least, int most)
  {
    const double value = number();
    if (!(value >= least && value <= most) || value != std::floor(value))
      fail(std::to_string(value),
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(value);
  }
  int integer(const char *name, int least, int most)
  {
    expect({name});
    return integer(least, most);
  }
  [[noreturn]] void fail(std::string_view found, const std::string &expected) const
  {
    fail_in_line(text, at, found.empty() ? "the end of the file" : "'" + printable(found) + "'",
                 expected);
  }

 private:
  const std::string_view text;
  std::size_t at = 0;
};

void read_text_function(Words &words, AceFile &file)
{
  words.expect({"ctilde_basis_func"});
  const int rank = words.integer("rank", 1, ACE_MOST_RANK);
  const int ndensity = words.integer("ndens", 1, ACE_MOST_FUNCTIONS);
  words.integer("mu0", 0, 0);
  AceSpecies &to = file.functions[0];
  const auto list = [&](const char *name, std::vector<int> &of, int least, int most) {
    words.expect({name});
    for (int t = 0; t < rank; ++t) of.push_back(words.integer(least, most));
  };
  list("mu", to.mus, 0, 0);
  list("n", to.ns, 1, ACE_MOST_FUNCTIONS);
  list("l", to.ls, 0, ACE_MOST_DEGREE);
  const int rows = words.integer("num_ms", 0, 1 << 24);
  to.rank.push_back(rank);
  to.rows.push_back(rows);
  for (int row = 0; row < rows; ++row) {
    for (int t = 0; t < rank; ++t)
      to.ms.push_back(words.integer(-ACE_MOST_DEGREE, ACE_MOST_DEGREE));
    for (int p = 0; p < ndensity; ++p) to.coefficients.push_back(words.number());
  }
  file.ndensity[0].push_back(ndensity);
}

/// One element alone: of others, these files do not say the embedding.
void read_text(std::string_view contents, AceFile &file)
{
  Words words(contents.substr(contents.find("nelements")));
  FileBond &read = file.bonds[{0, 0}];
  AceBond &bond = read.bond;
  AceSpecies &species = species_of(file, 0);
  AceNetwork &network = file.network;
  if (const int n = words.integer("nelements", 1, MOST_ELEMENTS); n > 1)
    not_evaluated("an .ace of " + std::to_string(n) +
                  " elements does not say the embedding of all, expected one element; write it as "
                  ".yace");
  words.expect({"elements"});
  file.elements.emplace_back(words.next());
  read.l_max = words.integer("lmax", 0, ACE_MOST_DEGREE);
  const bool named = words.is_next("embedding-function");
  if (named) words.expect({"embedding-function"});
  species.embedding = embedding_of(named ? words.next() : "FinnisSinclair");
  std::vector<double> parameters(words.integer(1, 2 * ACE_MOST_FUNCTIONS));
  words.expect({"FS", "parameters"});
  for (double &parameter : parameters) parameter = words.number();
  set_fs_parameters(species, parameters, static_cast<int>(parameters.size() / 2));
  if (!named && std::ranges::any_of(species.power, [](double m) { return m != 1.0; }))
    not_evaluated("it has no line embedding-function, and exponents that are not 1; expected the "
                  "line; write it as .yace");
  words.expect({"core", "energy-cutoff", "parameters"});
  species.core_cutoff = words.number();
  species.core_width = words.number();
  network.energy = {0.0};
  if (words.is_next("E0")) {
    words.expect({"E0"});
    network.energy = {words.number()};
  }
  words.expect({"radbasename"});
  bond.radial = radial_of(words.next());
  bond.nbase = words.integer("nradbase", 1, ACE_MOST_FUNCTIONS);
  read.nradial = words.integer("nradmax", 1, ACE_MOST_FUNCTIONS);
  const auto number = [&](const char *name) {
    words.expect({name});
    return words.number();
  };
  number("cutoffmax");
  network.delta = number("deltaSplineBins");
  words.expect({"core", "repulsion", "parameters"});
  bond.prehc = words.number();
  bond.lambdahc = words.number();
  bond.lambda = number("radparameter");
  bond.rcut = number("cutoff");
  bond.dcut = number("dcut");
  words.expect({"crad"});
  bond.crad.resize(static_cast<std::size_t>(read.nradial) * (read.l_max + 1) * bond.nbase);
  for (int k = 0; k < bond.nbase; ++k)
    for (int nl = 0; nl < read.nradial * (read.l_max + 1); ++nl)
      bond.crad[static_cast<std::size_t>(nl) * bond.nbase + k] = words.number();
  for (const char *name : {"rankmax", "ndensitymax", "num_c_tilde_max", "num_ms_combinations_max"})
    words.integer(name, 0, 1 << 30);
  for (const char *name : {"total_basis_size_rank1", "total_basis_size"})
    for (int n = words.integer(name, 0, 1 << 30); n > 0; --n) read_text_function(words, file);
  if (const std::string_view more = words.next(); !more.empty())
    words.fail(more, "the end of the file");
  file.embeddings.insert(0);
}

/* ---- both ---- */

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
  }
}

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
  work("weight", species.weight);
  work("power", species.power);
}

constexpr double AceBond::*BOND_NUMBERS[] = {&AceBond::lambda,  &AceBond::rcut,    &AceBond::dcut,
                                             &AceBond::rcut_in, &AceBond::dcut_in, &AceBond::prehc,
                                             &AceBond::lambdahc};

}    // namespace

bool looks_like_ace(std::string_view contents)
{
  const std::string_view key = first_key(contents);
  for (const char *name :
       {"elements", "E0", "deltaSplineBins", "embeddings", "bonds", "functions", "emb_spec",
        "radial_basis", "nnorm", "nelements", "global", "species", "metadata", "lmax"})
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
  network.atom_type = arrays.integers("atom_type", 1, MOST_ELEMENTS);
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
