// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_nep.h"

#include "../../core/periodic_table.h"
#include "../../core/printable.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace pwmlff {
namespace {

/// What a simulation can have; anything else would hang it or exhaust the memory.
constexpr double LEAST_CUTOFF = 0.01, LARGEST_CUTOFF = 100.0;
constexpr int MOST_FUNCTIONS = 100, MOST_NEURONS = 10000;

constexpr const char *COPY = "copy the file again, or write it again with the program that made it";

/* ---- radii for ZBL ---- */

/// Covalent radii of H to Pu in angstrom: Pyykko and Atsumi 2009, doi:10.1002/chem.200800987, those
/// of metals less 10 %, as Grimme et al. 2010, doi:10.1063/1.3382344, have them.
constexpr std::array<double, 95> COVALENT_RADII = {
    0,    0.32, 0.46, 1.20, 0.94, 0.77, 0.75, 0.71, 0.63, 0.64, 0.67, 1.40, 1.25, 1.13, 1.04, 1.10,
    1.02, 0.99, 0.96, 1.76, 1.54, 1.33, 1.22, 1.21, 1.10, 1.07, 1.04, 1.00, 0.99, 1.01, 1.09, 1.12,
    1.09, 1.15, 1.10, 1.14, 1.17, 1.89, 1.67, 1.47, 1.39, 1.32, 1.24, 1.15, 1.13, 1.13, 1.08, 1.15,
    1.23, 1.28, 1.26, 1.26, 1.23, 1.32, 1.31, 2.09, 1.76, 1.62, 1.47, 1.58, 1.57, 1.56, 1.55, 1.51,
    1.52, 1.51, 1.50, 1.49, 1.49, 1.48, 1.53, 1.46, 1.37, 1.31, 1.23, 1.18, 1.16, 1.11, 1.12, 1.13,
    1.32, 1.30, 1.30, 1.36, 1.31, 1.38, 1.42, 2.01, 1.81, 1.67, 1.58, 1.52, 1.53, 1.54, 1.55};

/// The radius that factors of cutoffs are multiplied with: 4/3 of the above, to six digits.
double scaled_radius(int z)
{
  const double radius = COVALENT_RADII[z] * 4.0 / 3.0, unit = radius < 1.0 ? 1e6 : 1e5;
  return std::round(radius * unit) / unit;
}

/* ---- lines and words ---- */

[[noreturn]] void fail(int line, const std::string &found, const std::string &expected,
                       const std::string &remedy = COPY)
{
  throw std::runtime_error("cannot be read as a NEP: in line " + std::to_string(line) + " found " +
                           found + ", expected " + expected + "; " + remedy);
}

std::string quoted(std::string_view text)
{
  return "'" + printable(text) + (text.size() > 60 ? "...'" : "'");
}

constexpr std::string_view BLANKS = " \t\r\v\f";

/// The next word of a line, which loses it; empty at its end.
std::string_view next_word(std::string_view &rest)
{
  rest.remove_prefix(std::min(rest.find_first_not_of(BLANKS), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(BLANKS));
  rest.remove_prefix(word.size());
  return word;
}

/// @return whether all of a word is a number that the type can hold
template <class Number> bool parse(std::string_view word, Number &value)
{
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

/// A text without the byte order mark that some editors begin it with.
std::string_view without_mark(std::string_view text)
{
  constexpr std::string_view MARK = "\xef\xbb\xbf";
  return text.substr(text.substr(0, MARK.size()) == MARK ? MARK.size() : 0);
}

/// The lines of a text that are not blank.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest(without_mark(text)) { next(); }

  void next()
  {
    do {
      end = rest.empty();
      if (end) return;
      number += 1;
      line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    } while (line.find_first_not_of(BLANKS) == std::string_view::npos);
  }

  std::string found() const { return end ? "the end of the file" : quoted(trimmed()); }
  std::string_view trimmed() const
  {
    const std::size_t first = line.find_first_not_of(BLANKS);
    return line.substr(first, line.find_last_not_of(BLANKS) + 1 - first);
  }

  std::string_view line;
  int number = 0;      // of the line, from 1; of the last one at the end
  bool end = false;    // no line is left

 private:
  std::string_view rest;
};

/// A line of the head: a keyword and its values.
struct HeadLine {
  int number;
  std::string text;
  std::vector<double> values;

  /// A value that has to be a whole number.
  int integer(std::size_t k, int least, int most) const
  {
    const double value = values[k];
    if (!(value >= least && value <= most) || value != std::floor(value))
      refuse("whole numbers from " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(value);
  }
  [[noreturn]] void refuse(const std::string &expected, const std::string &remedy = COPY) const
  {
    fail(number, quoted(text), expected, remedy);
  }
};

/// @param expected  the line as it should be
/// @param counts    allowed numbers of values
HeadLine read_head_line(Lines &lines, std::string_view keyword, const std::string &expected,
                        std::initializer_list<std::size_t> counts)
{
  HeadLine result{lines.number, std::string(lines.end ? "" : lines.trimmed()), {}};
  std::string_view rest = lines.line;
  if (lines.end || next_word(rest) != keyword) fail(lines.number, lines.found(), expected);
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    double value = 0.0;
    if (!parse(word, value) || !std::isfinite(value))
      fail(lines.number, quoted(word) + " in " + quoted(result.text), "a finite number");
    result.values.push_back(value);
  }
  if (std::find(counts.begin(), counts.end(), result.values.size()) == counts.end())
    result.refuse(expected + ", not " + std::to_string(result.values.size()) + " values");
  lines.next();
  return result;
}

/* ---- the head ---- */

/// Kinds of NEP that are refused: what is in the name, and what such a file is.
struct OtherKind {
  std::string_view name, what;
};
constexpr OtherKind OTHER_KINDS[] = {
    {"vdw", "has dispersion by charges of its own; run it with GPUMD"},
    {"dipole", "gives dipoles, not energies; run it with GPUMD"},
    {"polarizability", "gives polarizabilities, not energies; run it with GPUMD"},
    {"spin", "has spins; run it with the program that trained it"},
    {"ilp", "names layers for an interlayer potential; run it with GPUMD"},
};

struct FirstWord {
  int version = 0;
  int charge_mode = 0;    // 1 or 2 where there are charges
  bool zbl = false, temperature = false;
};

FirstWord read_first_word(std::string_view word, int line)
{
  const std::string expected =
      "'nep3', 'nep4' or 'nep5', and behind it '_zbl' or '_temperature' or both, or behind 'nep4' "
      "or 'nep5' '_charge1', '_charge2', '_zbl_charge1' or '_zbl_charge2'";
  // "nep4_zbl" is in two parts; "nep4_charge2" is of the kind "charge".
  std::string_view rest = word;
  std::vector<std::string_view> parts;
  while (!rest.empty()) {
    parts.push_back(rest.substr(0, rest.find('_')));
    rest.remove_prefix(std::min(parts.back().size() + 1, rest.size()));
  }
  for (std::size_t k = 1; k < parts.size(); ++k)
    for (const OtherKind &other : OTHER_KINDS)
      if (parts[k].substr(0, other.name.size()) == other.name)
        throw std::invalid_argument("is a NEP that is not evaluated here: line " +
                                    std::to_string(line) + " says " + quoted(word) + ", which " +
                                    std::string(other.what));
  FirstWord result;
  const bool known = word.size() >= 4 && parts[0].size() == 4 && parts[0].substr(0, 3) == "nep" &&
                     parts[0][3] >= '3' && parts[0][3] <= '5' && word.back() != '_';
  const char *remedy =
      "run it with the program that made it or, if the word is damaged, copy the file again";
  if (!known) fail(line, quoted(word), expected, remedy);
  result.version = parts[0][3] - '0';
  if (parts.back() == "charge1" || parts.back() == "charge2") {
    result.charge_mode = parts.back().back() - '0';
    parts.pop_back();
  } else if (parts.back() == "charge3") {
    throw std::invalid_argument(
        "is a NEP that is not evaluated here: line " + std::to_string(line) + " says " +
        quoted(word) +
        ", whose charges interact in real space alone; run it with NEP_CPU, or train it with "
        "charge mode 1 or 2");
  }
  for (std::size_t k = 1; k < parts.size(); ++k) {
    bool &flag = parts[k] == "zbl" ? result.zbl : result.temperature;
    if ((parts[k] != "zbl" && parts[k] != "temperature") || flag)
      fail(line, quoted(word), expected, remedy);
    flag = true;
  }
  if (result.charge_mode > 0 && (result.version == 3 || result.temperature))
    fail(line, quoted(word), expected, remedy);
  return result;
}

FirstWord read_elements(Lines &lines, NepNetwork &network)
{
  if (lines.end) fail(1, "no text", "a NEP");
  std::string_view rest = lines.line;
  const FirstWord result = read_first_word(next_word(rest), lines.number);
  const std::string expected = "the number of elements and as many different symbols";
  int count = 0;
  if (!parse(next_word(rest), count)) fail(lines.number, lines.found(), expected);
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const auto found = std::find(ELEMENT_SYMBOLS.begin() + 1, ELEMENT_SYMBOLS.end(), word);
    const int z = static_cast<int>(found - ELEMENT_SYMBOLS.begin());
    std::vector<int> &known = network.atom_type;
    if (found == ELEMENT_SYMBOLS.end())
      fail(lines.number, quoted(word), "the symbol of an element, like Hf",
           "write symbols as in the periodic table");
    if (std::find(known.begin(), known.end(), z) != known.end())
      fail(lines.number, quoted(word) + " twice", expected);
    known.push_back(z);
  }
  if (count < 1 || count != network.nspecies())
    fail(lines.number,
         "the number " + std::to_string(count) + " and " + std::to_string(network.nspecies()) +
             " symbols",
         expected);
  network.version = result.version;
  network.charge_mode = result.charge_mode;
  lines.next();
  return result;
}

/* ---- cutoffs and ZBL ---- */

enum class ZblForm { none, universal, typewise, flexible };

/// What the head says of ZBL.
struct ZblLine {
  ZblForm form = ZblForm::none;
  double inner = 0.0, outer = 0.0;
  double factor = 0.0;         // typewise: outer is at most this times the sum of two radii
  double inner_share = 0.0;    // typewise: inner as a share of outer
  int number = 0;              // of the line that says so
  std::vector<double> values;
};

ZblLine read_zbl_line(Lines &lines)
{
  const HeadLine line = read_head_line(lines, "zbl", "'zbl INNER OUTER [FACTOR]'", {2, 3});
  ZblLine result{ZblForm::universal, line.values[0], line.values[1], 0.0, 0.0,
                 line.number,        line.values};
  if (result.inner == 0.0 && result.outer == 0.0) {
    result.form = ZblForm::flexible;
    result.values.resize(2);
    return result;
  }
  if (!(result.inner >= 0.0 && result.inner < result.outer && result.outer <= LARGEST_CUTOFF))
    line.refuse("0 <= INNER < OUTER <= 100 angstrom, or 0 0");
  if (line.values.size() == 3) {
    result.form = ZblForm::typewise;
    result.factor = line.values[2];
    if (!(result.factor > 0.0)) line.refuse("a factor above 0");
  }
  return result;
}

/// Sum of two radii. @throws where one is not known
double sum_of_radii(int z1, int z2, int line)
{
  for (const int z : {z1, z2})
    if (z >= static_cast<int>(COVALENT_RADII.size()))
      fail(line, "a cutoff by covalent radii for " + symbol(z), "elements up to Pu there",
           "train the model with cutoffs that are numbers");
  return scaled_radius(z1) + scaled_radius(z2);
}

void read_cutoffs(Lines &lines, NepNetwork &network, ZblLine &zbl)
{
  const std::size_t n = network.nspecies(), by_element = 2 * n + 2;
  const HeadLine line = read_head_line(lines, "cutoff",
                                       "'cutoff RADIAL ANGULAR [NEIGHBORS NEIGHBORS [FACTOR FACTOR "
                                       "FACTOR]]', or 'cutoff' with RADIAL "
                                       "ANGULAR of each element and NEIGHBORS NEIGHBORS",
                                       {2, 4, 7, by_element});
  const std::vector<double> &values = line.values;
  const bool each = values.size() == by_element;
  const bool factors = values.size() == 7;
  if (values.size() > 2)
    std::copy_n(factors ? &values[2] : &values.back() - 1, 2, network.neighbors.data());
  if (factors && (values[4] > 0.0) != (values[5] > 0.0))
    line.refuse("factors of both cutoffs above 0, or both 0 or below");
  network.cut_radial.resize(n * n);
  network.cut_angular.resize(n * n);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b)
      for (const int part : {0, 1}) {
        double cut = each ? (values[2 * a + part] + values[2 * b + part]) / 2.0 : values[part];
        if (factors && values[4] > 0.0)
          cut = std::min(cut, values[4 + part] * sum_of_radii(network.atom_type[a],
                                                              network.atom_type[b], line.number));
        if (!(cut >= LEAST_CUTOFF && cut <= LARGEST_CUTOFF))
          line.refuse("cutoffs from 0.01 to 100 angstrom");
        (part ? network.cut_angular : network.cut_radial)[a * n + b] = cut;
      }
  if (factors && values[6] > 0.0 && zbl.form == ZblForm::universal) {
    zbl.form = ZblForm::typewise;
    zbl.factor = values[6];
    zbl.inner_share = 0.5;
    zbl.number = line.number;
    zbl.values = {0.0, 0.0};    // no line zbl can say it
  }
}

/// A row of NepNetwork::zbl_table.
/// @param table [10] of a flexible ZBL, which is that row; else null
/// @throws as sum_of_radii
std::array<double, 10> zbl_row(const ZblLine &line, int z1, int z2, const double *table)
{
  std::array<double, 10> row{line.inner, line.outer};
  if (table) std::copy_n(table, row.size(), row.begin());
  if (line.form == ZblForm::typewise) {
    row[1] = std::min(line.outer, line.factor * sum_of_radii(z1, z2, line.number));
    row[0] = line.inner_share * row[1];
  }
  for (int k = 0; k < 4 && !table; ++k) {
    row[2 + 2 * k] = UNIVERSAL_A[k];
    row[3 + 2 * k] = UNIVERSAL_B[k];
  }
  return row;
}

std::string decimals(double value)
{
  std::array<char, 32> text{};
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return {text.data(), result.ptr};
}

/// Where pairs are found only up to the angular cutoff, as in GPUMD, ZBL may end with a jump.
void warn_of_jump(NepNetwork &network)
{
  const int n = network.nspecies();
  double worst = 0.0;
  int pair = 0, pairs = 0;
  for (int a = 0; a < n; ++a)
    for (int b = a; b < n; ++b) {
      const ZblPair &zbl = network.zbl[a * n + b];
      if (zbl.outer - zbl.reach > 0.0) ++pairs;
      if (zbl.outer - zbl.reach > worst) worst = zbl.outer - zbl.reach, pair = a * n + b;
    }
  if (pairs == 0) return;
  const ZblPair &zbl = network.zbl[pair];
  network.warnings.push_back(
      "the outer radius of ZBL is larger than the angular cutoff for " + std::to_string(pairs) +
      " pairs of elements, most for " + symbol(network.atom_type[pair / n]) + "-" +
      symbol(network.atom_type[pair % n]) + " (" + decimals(zbl.outer) + " and " +
      decimals(zbl.reach) +
      " angstrom): ZBL ends at the angular cutoff, as in GPUMD, so the energy jumps there; other "
      "programs reach farther");
}

/* ---- the numbers ---- */

/// Counts of the numbers behind the head.
struct Counts {
  Counts(const NepNetwork &network, ZblForm zbl)
  {
    const std::int64_t n = network.nspecies(), d = network.ndescriptors(), h = network.nhidden0,
                       h1 = network.nhidden1;
    const std::int64_t layers = h1 ? (d + 1) * h + (h + 2) * h1 : (d + 2) * h;
    networks = (network.version == 3 ? 1 : n) * layers + (network.version == 5 ? n : 0);
    charges = network.charge_mode > 0 ? n * h + 1 : 0;
    radial = n * n * network.nradial * network.kradial;
    angular = n * n * network.nangular * network.kangular;
    scaler = d;
    table = zbl == ZblForm::flexible ? 10 * n * (n + 1) / 2 : 0;
  }
  std::int64_t total() const
  {
    return networks + charges + biases + radial + angular + scaler + table;
  }
  std::string text() const
  {
    std::string result =
        std::to_string(total()) + " numbers (networks " + std::to_string(networks) +
        (charges ? ", charges " + std::to_string(charges) : "") + ", bias " +
        std::to_string(biases) + ", radial " + std::to_string(radial) + ", angular " +
        std::to_string(angular) + ", q_scaler " + std::to_string(scaler);
    return result + (table ? ", ZBL " + std::to_string(table) + ")" : ")");
  }

  std::int64_t networks, charges, biases = 1, radial, angular, scaler, table;
};

/// The numbers behind the head and where they stand.
struct NumberLines {
  std::vector<double> values;
  std::vector<int> line;    // of each
};

/// @param most   more are an error
/// @param bytes  of the file
NumberLines read_numbers(Lines &lines, std::int64_t most, std::size_t bytes, const Counts &counts)
{
  NumberLines result;
  const auto expected = std::min<std::size_t>(most, bytes / 2 + 1);
  result.values.reserve(expected);
  result.line.reserve(expected);
  for (; !lines.end; lines.next()) {
    std::string_view rest = lines.line;
    double value = 0.0;
    if (!parse(next_word(rest), value) || !std::isfinite(value))
      fail(lines.number, lines.found(), "a finite number");
    if (rest.find_first_not_of(BLANKS) != std::string_view::npos)
      fail(lines.number, lines.found(), "one number");
    if (static_cast<std::int64_t>(result.values.size()) == most)
      fail(lines.number, lines.found() + ", a number too many", counts.text());
    result.values.push_back(value);
    result.line.push_back(lines.number);
  }
  return result;
}

/// The counts that fit. MatPL wrote a bias of each element where nep4 has one for all, and no
/// coefficients of the angular part where nothing depends on them.
/// @param found  numbers in the file
Counts fitting(const Counts &counts, const NepNetwork &network, const NumberLines &found, int line)
{
  const auto size = static_cast<std::int64_t>(found.values.size());
  for (const bool biases : {false, true})
    for (const bool no_angular : {false, true}) {
      if ((biases && network.version != 4) || (no_angular && network.angular())) continue;
      Counts result = counts;
      if (biases) result.biases = network.nspecies();
      if (no_angular) result.angular = 0;
      if (result.total() == size) return result;
    }
  fail(line, "the end of the file after " + std::to_string(size) + " numbers", counts.text());
}

/// Takes numbers one after the other.
struct Numbers {
  const double *next;

  /// Append count of them, with another sign if it is -1.
  void append(std::vector<double> &to, std::int64_t count, double sign = 1.0)
  {
    for (const double *const end = next + count; next != end; ++next) to.push_back(sign * *next);
  }

  /// The coefficients of one part, whose last indices in the file are the species.
  std::vector<double> coefficients(int nspecies, int nfunctions)
  {
    const std::size_t pairs = static_cast<std::size_t>(nspecies) * nspecies;
    std::vector<double> result(pairs * nfunctions);
    for (int f = 0; f < nfunctions; ++f)
      for (std::size_t pair = 0; pair < pairs; ++pair) result[pair * nfunctions + f] = *next++;
    return result;
  }
};

void take_networks(Numbers &numbers, NepNetwork &network, bool bias_of_each)
{
  const std::int64_t d = network.ndescriptors(), h = network.nhidden0, h1 = network.nhidden1;
  const int n = network.nspecies();
  const double *const first = numbers.next;
  network.shift.assign(n, 0.0);
  for (int s = 0; s < n; ++s) {
    if (network.version == 3) numbers.next = first;    // one network for all
    numbers.append(network.weight0, h * d);
    numbers.append(network.bias0, h, -1.0);
    if (h1) {
      numbers.append(network.weight1, h1 * h);
      numbers.append(network.bias1, h1, -1.0);
    }
    numbers.append(network.last, network.nlast());
    if (network.charge_mode > 0) numbers.append(network.last_charge, h);
    if (network.version == 5) network.shift[s] = -*numbers.next++;
  }
  if (network.charge_mode > 0) network.root_epsilon = *numbers.next++;
  for (int s = 0; s < n; ++s) network.shift[s] -= bias_of_each ? *numbers.next++ : *numbers.next;
  if (!bias_of_each) ++numbers.next;
}

}    // namespace

bool looks_like_nep(std::string_view contents)
{
  std::string_view rest = without_mark(contents.substr(0, 256));
  rest = rest.substr(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
  return rest.size() > 3 && rest.substr(0, 3) == "nep" &&
         (rest[3] == '_' || (rest[3] >= '0' && rest[3] <= '9'));
}

NepNetwork read_nep(std::string_view text)
{
  Lines lines(text);
  NepNetwork network;
  const FirstWord first = read_elements(lines, network);
  network.temperature = first.temperature;
  ZblLine zbl = first.zbl ? read_zbl_line(lines) : ZblLine{};
  read_cutoffs(lines, network, zbl);
  network.zbl_line = zbl.values;

  const HeadLine functions = read_head_line(lines, "n_max", "'n_max RADIAL ANGULAR'", {2});
  network.nradial = functions.integer(0, 0, MOST_FUNCTIONS) + 1;
  network.nangular = functions.integer(1, 0, MOST_FUNCTIONS) + 1;
  const HeadLine basis = read_head_line(lines, "basis_size", "'basis_size RADIAL ANGULAR'", {2});
  network.kradial = basis.integer(0, 0, MOST_FUNCTIONS) + 1;
  network.kangular = basis.integer(1, 0, MOST_FUNCTIONS) + 1;
  const HeadLine degrees = read_head_line(
      lines, "l_max", "'l_max L' and 2 to 6 flags (of 222, 1111, 112, 123, 233 and 134)",
      {3, 4, 5, 6, 7});
  network.l_max = degrees.integer(0, 0, NEP_LARGEST_DEGREE);
  for (std::size_t k = 1; k < degrees.values.size(); ++k)
    network.invariant[k - 1] = degrees.values[k] != 0.0;
  if (degrees.values.size() == 5 && degrees.values[4] != 0.0)
    network.warnings.push_back(
        "line " + std::to_string(degrees.number) +
        " says by the last of four flags that the invariant (123) is on, as GPUMD has them since "
        "its pull request 1519; before, the same flag was that of (1122), which is not evaluated: "
        "compare an energy with the program that trained the model");
  const HeadLine neurons =
      read_head_line(lines, "ANN", "'ANN NEURONS 0' or 'ANN NEURONS NEURONS'", {2});
  network.nhidden0 = neurons.integer(0, 1, MOST_NEURONS);
  network.nhidden1 = neurons.integer(1, 0, MOST_NEURONS);
  if (network.charge_mode > 0 && network.nhidden1 > 0)
    neurons.refuse("one hidden layer in a model with charges: 'ANN NEURONS 0'");

  const int n = network.nspecies();
  Counts counts(network, zbl.form);
  const std::int64_t most = counts.total() + (network.version == 4 ? n - 1 : 0);
  const NumberLines found = read_numbers(lines, most, text.size(), counts);
  counts = fitting(counts, network, found, lines.number);

  Numbers numbers{found.values.data()};
  take_networks(numbers, network, counts.biases > 1);
  network.c_radial = numbers.coefficients(n, network.nradial * network.kradial);
  if (counts.angular)
    network.c_angular = numbers.coefficients(n, network.nangular * network.kangular);
  if (!network.angular()) network.unused.swap(network.c_angular);
  numbers.append(network.q_scaler, counts.scaler);

  if (zbl.form == ZblForm::none) return network;
  network.zbl_table.resize(static_cast<std::size_t>(n) * n * 10);
  for (int a = 0; a < n; ++a)
    for (int b = a; b < n; ++b) {
      const int z1 = network.atom_type[a], z2 = network.atom_type[b];
      const double *const table = counts.table ? numbers.next : nullptr;
      if (table && !(table[0] >= 0.0 && table[1] <= LARGEST_CUTOFF &&
                     (table[0] < table[1] || table[1] == 0.0)))
        fail(found.line[table - found.values.data()],
             "ZBL from " + decimals(table[0]) + " to " + decimals(table[1]) + " for " + symbol(z1) +
                 "-" + symbol(z2) + " in the table at the end",
             "0 <= inner < outer <= 100 angstrom, or 0 and 0");
      const std::array<double, 10> row = zbl_row(zbl, z1, z2, table);
      for (const int pair : {a * n + b, b * n + a})
        std::ranges::copy(row, network.zbl_table.begin() + 10 * pair);
      if (table) numbers.next += 10;
    }
  network.make_zbl();
  warn_of_jump(network);
  return network;
}

}    // namespace pwmlff
