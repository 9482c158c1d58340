// SPDX-License-Identifier: GPL-2.0-or-later

#include "../../core/printable.h"
#include "ace_file.h"
#include "yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>

namespace pwmlff {
namespace {

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

}    // namespace

void read_text(std::string_view contents, AceFile &file)
{
  Words words(contents.substr(contents.find("nelements")));
  FileBond &read = file.bonds[{0, 0}];
  AceBond &bond = read.bond;
  AceSpecies &species = species_of(file, 0);
  AceNetwork &network = file.network;
  if (const int n = words.integer("nelements", 1, ACE_MOST_ELEMENTS); n > 1)
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

}    // namespace pwmlff
