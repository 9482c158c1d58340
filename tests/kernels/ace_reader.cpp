// SPDX-License-Identifier: GPL-2.0-or-later

// Files of ACE: the same numbers in other forms of YAML and as .ace text give the same arrays;
// files that are refused say why; damaged ones are refused, or the engine and the plain evaluation
// give the same for what they are now. Exits with 1 where something differs. Arguments: how many
// damaged ones, of which series.

#include "ace_files.h"
#include "core/family.h"
#include "families/ace/plain_ace.h"
#include "families/ace/read_ace.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace pwmlff;

void expect(const std::string &what, bool holds)
{
  if (holds) return;
  std::cout << what << "\n";
  ++failures;
}

std::string replaced(std::string text, const std::string &from, const std::string &to)
{
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("there is no " + from);
  return text.replace(at, from.size(), to);
}

std::string arrays_of(const std::string &text) { return ace_arrays(read_ace(text)).written(); }

const std::string ONE = R"(elements: [Cu]
E0: [-1.5]
deltaSplineBins: 0.001
embeddings:
  0: {ndensity: 2, FS_parameters: [1, 1, 2, 0.5], npoti: FinnisSinclair,
      rho_core_cutoff: 100, drho_core_cutoff: 25}
bonds:
  [0, 0]: {nradmax: 2, lmax: 1, nradbasemax: 2, radbasename: ChebPow, radparameters: [2],
      radcoefficients: [[[1, 2], [3, 4]], [[5, 6], [7, 8e-05]]], prehc: 1, lambdahc: 3,
      rcut: 5, dcut: 0.25}
functions:
  0:
    - {mu0: 0, rank: 1, ndensity: 2, num_ms_combs: 1, mus: [0], ns: [2], ls: [0],
       ms_combs: [0], ctildes: [0.5, 0.25]}
    - {mu0: 0, rank: 2, ndensity: 2, num_ms_combs: 2, mus: [0, 0], ns: [1, 2], ls: [1, 1],
       ms_combs: [0, 0, 1, -1], ctildes: [1, 2, 3, 4]}
)";

/// The same in block style, with keys in another order, comments, quotes and things unknown.
const std::string BLOCK = R"(# a comment
---
metadata:
  note: "a: b, [c"
  list:
  - 1
  - {x: [y, 'z}']}
  other
deltaSplineBins:   1e-03   # angstrom
functions:
  0:
  -  mu0: 0
     ms_combs: [ 0 ]
     rank: 1
     ndensity: +2
     num_ms_combs: 1
     mus: [0,]
     ns:
     - 2
     ls: [0]
     ctildes: [
  0.5,
  0.25]
  - rank: 2
    mu0: 0
    ndensity: 2
    num_ms_combs: 2
    mus: [0, 0]
    ns: [1, 2]

    ls: [1, 1]
    ms_combs: [0, 0,
 1, -1]
    ctildes: [1, 2, 3., 4.0e0]
bonds:
    [0,0] :
        radcoefficients:
          - - [1, 2]
            - - 3
              - 4
          -
            - [5, 6]
            - [7, 8.0E-5]
        nradmax: 2
        lmax: 1
        nradbasemax: 2
        radbasename: 'ChebPow'
        radparameters: [2, 7]
        prehc: 1
        lambdahc: 3
        inner_cutoff_type: density
        rcut: 5
        dcut: 0.25
embeddings: {0: {ndensity: 2, FS_parameters: [1, 1,
2, 0.5], npoti: "FinnisSinclair", rho_core_cutoff: 100, drho_core_cutoff: 25}}
elements: [
Cu
]
E0:
- -1.5
)";

const std::string TEXT = R"(# a comment of one line: nelement=2

nelements=1
elements: Cu

lmax=1

embedding-function: FinnisSinclair
4 FS parameters:  1.000000 1.000000 2.000000 0.500000
core energy-cutoff parameters: 100.000000 25.0
E0: -1.500000000000000000

radbasename=ChebPow
nradbase=2
nradmax=2
cutoffmax=5.000000
deltaSplineBins=0.001000
core repulsion parameters: 1.000000000000000000 3.000000000000000000
radparameter= 2.000000000000000000
cutoff= 5.000000000000000000
dcut= 0.250000000000000000
crad= 1 3
 5 7
 2 4
 6 0.00008

rankmax=2
ndensitymax=2

num_c_tilde_max=2
num_ms_combinations_max=2
total_basis_size_rank1: 1
ctilde_basis_func: rank=1 ndens=2 mu0=0 mu=( 0 )
n=( 2 )
l=( 0 )
num_ms=1
< 0 >: 0.5 0.25
total_basis_size: 1
ctilde_basis_func: rank=2 ndens=2 mu0=0 mu=( 0  0 )
n=( 1  2 )
l=( 1  1 )
num_ms=2
<  0  0 >: 1 2
<  1 -1 >: 3 4
)";

void check_forms()
{
  const std::string wanted = arrays_of(ONE);
  expect("block style gives other arrays", arrays_of(BLOCK) == wanted);
  expect("with ends of lines of DOS", arrays_of([] {
                                        std::string text;
                                        for (const char c : BLOCK)
                                          text +=
                                              c == '\n' ? std::string("\r\n") : std::string(1, c);
                                        return text;
                                      }()) == wanted);
  expect(".ace gives other arrays", arrays_of(TEXT) == wanted);
  const AceNetwork network = read_ace(ONE);
  expect("crad [n, l, k]", network.bonds[0].crad == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8e-5});
  expect("ms", network.species[0].ms == std::vector<int>{0, 0, 0, 1, -1});
  expect("rho_core_cutoff .inf",
         std::isinf(read_ace(replaced(ONE, "rho_core_cutoff: 100", "rho_core_cutoff: .inf"))
                        .species[0]
                        .core_cutoff));
  expect("no inner_cutoff_type is density", network.inner == AceInner::density);
  for (const ace_files::Form &form : ace_files::forms()) {
    const std::string text = file(form), arrays = arrays_of(text);
    expect("arrays that were read again",
           ace_arrays(ace_of(Arrays::read(arrays))).written() == arrays);
    expect("looks like one", looks_like_ace(text.substr(0, 256)));
  }
  for (const std::string &text :
       {ONE, BLOCK, TEXT, std::string("{elements: [Cu]}"), std::string("# x\n\n global:\n")})
    expect("looks like ACE: " + text.substr(0, 20), looks_like_ace(text.substr(0, 256)));
  for (const char *other : {"", "nep4 1 C", "PK\x03\x04", "elements", "# a", "a: b", "elements Cu",
                            "version https://git-lfs"})
    expect(std::string("looks like ACE: ") + other, !looks_like_ace(other));
}

template <class Error> void expect_refusal(const std::string &text, const std::string &words)
{
  std::string said = "nothing";
  try {
    read_ace(text);
  } catch (const Error &error) {
    said = error.what();
  } catch (const std::exception &error) {
    said = std::string("another error, ") + error.what();
  }
  if (said.find(words) != std::string::npos && said.find("expected") != std::string::npos &&
      said.find(';') != std::string::npos && said.find("another error") == std::string::npos)
    return;
  std::cout << "refused with: " << said << "\n  expected: " << words << "\n";
  ++failures;
}

void check_refusals()
{
  using Damaged = std::runtime_error;
  using Other = std::invalid_argument;
  const auto damaged = [](const std::string &from, const std::string &to,
                          const std::string &words) {
    expect_refusal<Damaged>(replaced(ONE, from, to), words);
  };
  const auto other = [](const std::string &from, const std::string &to, const std::string &words) {
    expect_refusal<Other>(replaced(ONE, from, to), words);
  };
  other("radbasename: ChebPow", "radbasename: ACE.jl.Basic", "'ACE.jl.Basic' of ACE.jl");
  other("radbasename: ChebPow", "radbasename: TEST_Other", "radial functions are 'TEST_Other'");
  other("npoti: FinnisSinclair", "npoti: Linear", "npoti) is 'Linear'");
  other("dcut: 0.25}", "dcut: 0.25, inner_cutoff_type: soft}", "inner_cutoff_type is 'soft'");
  other("FS_parameters: [1, 1, 2, 0.5]", "FS_parameters: [1, 1, 2]", "parameters are 3 for 2");
  damaged("  [0, 0]: {", "  [1, 0]: {", "found the bond [1, 0]");
  other("elements: [Cu]\nE0: [-1.5]", "elements: [Cu, Zr]\nE0: [-1.5, 0]", "no bond [0, 1]");
  other("elements", "global: {}\nelements", "holds B functions");
  expect_refusal<Other>("species:\n- {}\n", "pace_yaml2yace");
  expect_refusal<Other>(replaced(TEXT, "nelements=1", "nelements=2"), ".ace of 2 elements");
  expect_refusal<Other>(replaced(TEXT, "embedding-function: FinnisSinclair\n", ""),
                        "no line embedding-function");

  damaged("elements: [Cu]", "elements: [Xx]", "the element 'Xx'");
  damaged("E0: [-1.5]", "E0: [-1.5, 0]", "E0 of 2 elements");
  damaged("rank: 2", "rank: 3", "a function of rank 3 with 2 ns");
  damaged("num_ms_combs: 2", "num_ms_combs: 3", "4 ms_combs");
  damaged("ctildes: [1, 2, 3, 4]", "ctildes: [1, 2, 3]", "in line 16 found a function");
  damaged("ctildes: [1, 2, 3, 4]", "ctildes: [1, 2, 3, x]", "in line 16 found 'x'");
  damaged("ctildes: [1, 2, 3, 4]", "ctildes: [1, 2, 3, .nan]", "found '.nan'");
  damaged("ctildes: [1, 2, 3, 4]", "ctildes: [1, 2, 3, 1e999]", "found '1e999'");
  damaged("ms_combs: [0, 0, 1, -1]", "ms_combs: [0, 0, 2, -2]", "l 1, m 2");
  damaged("ns: [1, 2]", "ns: [1, 3]", "n 3");
  damaged("mus: [0, 0]", "mus: [0, 1]", "species 1");
  damaged("mu0: 0, rank: 2", "mu0: 1, rank: 2", "in line 15 found '1'");
  damaged("functions:\n  0:", "functions:\n  1:", "whole number from 1 to 1");
  damaged("functions:\n", "functions:\n  1: []\n", "functions of 2 elements");
  damaged("  0: {nd", "  7: {nd", "embeddings of 1");
  damaged("rcut: 5", "rcut: -5", "cutoff of -5");
  damaged("rcut: 5", "rcut: 500", "cutoff of 500");
  damaged("rcut: 5, ", "", "a bond without 'rcut'");
  damaged("rcut: 5", "rcut: 5, rcut: 5", "'rcut' twice");
  damaged("deltaSplineBins: 0.001", "deltaSplineBins: 1e-9", "cutoff of 5");
  damaged("lmax: 1", "lmax: 12", "whole number from 0 to 8");
  damaged("radparameters: [2]", "radparameters: [0]", "of ChebPow");
  damaged("[7, 8e-05]", "[7]", "7 radcoefficients");
  damaged("dcut: 0.25}", "dcut: 0.25, inner_cutoff_type: zbl}", "dcut_in 0 with");
  damaged("E0: [-1.5]", "E0: &a [-1.5]", "without anchors");
  damaged("E0: [-1.5]", "E0: [-1.5", "in line 3 found");
  damaged("E0: [-1.5]", "E0:", "in line 3 found 'deltaSplineBins");
  damaged("E0: [-1.5]", "E0: " + std::string(100, '['), "16 levels");
  damaged("E0: [-1.5]", "E0: [-1.5]\nmetadata: " + std::string(1 << 20, '['), "closed brackets");
  expect_refusal<Damaged>("elements: [Cu]\n", "a file without 'functions'");
  expect_refusal<Damaged>("elements:\n", "found the end of the file");
  expect_refusal<Damaged>(TEXT + "x", "found 'x'");
  expect_refusal<Damaged>(replaced(TEXT, "num_ms=2", "num_ms=3"), "the end of the file");
  const std::string two = [] {
    ace_files::Form form{{"Hf", "O"}};
    return file(form);
  }();
  expect_refusal<Other>(replaced(two, "inner_cutoff_type: density", "inner_cutoff_type: zbl"),
                        "inner_cutoff_type zbl and density");
  // One large bond makes all of them large.
  ace_files::Form form{{"H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne"}};
  const std::string bond = "nradmax: 3, lmax: 3, nradbasemax: 5, radbasename: ChebExpCos";
  std::string many =
      replaced(file(form), bond, "nradmax: 200, lmax: 8, nradbasemax: 200, radbasename: SBessel");
  const std::size_t first = many.find('[', many.find("radcoefficients")),
                    end = many.find("]]]", first);
  expect_refusal<Other>(
      many.replace(first, end + 3 - first, ace_files::list(200 * 9 * 200, [](int) { return 1; })),
      "36000000 radcoefficients");
}

/* ---- damage ---- */

std::string damaged(std::string text)
{
  static const std::vector<std::string> words = {"nan",        ".inf",
                                                 "-1",         "0",
                                                 "1e308",      "1e-320",
                                                 "1e999",      "99999999999999999999",
                                                 "2147483648", "2.5",
                                                 "",           "[",
                                                 "]",          "{",
                                                 "}",          ":",
                                                 ",",          "- ",
                                                 "\n",         "  ",
                                                 "#",          "'",
                                                 "\"",         "&",
                                                 "zbl",        std::string(1, '\0'),
                                                 "\xff"};
  const auto place = [&] {
    return static_cast<std::size_t>(ace_files::whole(0, static_cast<int>(text.size())));
  };
  for (int n = ace_files::whole(1, 3); n > 0 && !text.empty(); --n) {
    const std::size_t at = std::min(place(), text.size() - 1);
    switch (ace_files::whole(0, 5)) {
      case 0:
        text[at] = static_cast<char>(ace_files::whole(0, 255));
        break;
      case 1:
        text.erase(at, ace_files::whole(1, 40));
        break;
      case 2:
        text.insert(at, words[ace_files::whole(0, static_cast<int>(words.size()) - 1)]);
        break;
      case 3:
        text.insert(at, text.substr(place(), ace_files::whole(1, 200)));
        break;
      case 4:
        text[at] = static_cast<char>('0' + ace_files::whole(0, 9));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

/// The energy of one atom among three, by the engine and by the formulas.
void compare(const std::string &name, const std::string &text, const Family &family)
{
  const auto network = read_network(family.import(text));
  PlainAce plain(read_ace(text));
  const int n = plain.network().nspecies();
  const double x[] = {0.0, 0.1, 0.0, 1.9, 0.4, -0.3, -0.7, 2.1, 0.9, 2.5, 2.5, 0.2};
  std::vector<int> species = {0, n - 1, 0, 0}, first = {0}, candidate;
  for (int s = 0; s < n; ++s) {
    for (int j = 1; j < 4; ++j)
      if (species[j] == s) candidate.push_back(j);
    first.push_back(static_cast<int>(candidate.size()));
  }
  Input input;
  input.ncenters = 1;
  input.nrows = 4;
  input.x = x;
  input.species = species.data();
  input.first = first.data();
  input.candidate = candidate.data();
  const double wanted = plain.evaluate(input).energy, size = plain.size_of_terms();
  const auto engine = network->engine({Precision::exact, std::vector<bool>(n, true)});
  const double found = engine->evaluate(input).energy;
  if (!std::isfinite(wanted) || !std::isfinite(size)) return;
  expect(name + " gives " + std::to_string(found) + ", expected " + std::to_string(wanted),
         std::abs(found - wanted) <= 1e-11 * (1.0 + std::abs(wanted) + size));
}

void check_damage(int count, int series)
{
  for (int k = 0; k < 1000 * series; ++k) uniform(0, 1);
  std::vector<std::string> whole = {ONE, BLOCK, TEXT};
  for (const ace_files::Form &form : ace_files::forms())
    if (form.nbase < 12) whole.push_back(file(form));
  int read = 0;
  for (int k = 0; k < count; ++k) {
    const std::string text = damaged(whole[k % whole.size()]);
    const Family *const family = family_of_file(text);
    if (!family || std::string(family->name) != "ace") continue;
    try {
      compare("damaged file " + std::to_string(k), text, *family);
      ++read;
    } catch (const std::bad_alloc &) {
      throw;
    } catch (const std::exception &error) {
      const std::string said = error.what();
      expect("damaged file " + std::to_string(k) + ": " + said,
             said.find("found") != std::string::npos ||
                 said.find("not evaluated") != std::string::npos);
    }
  }
  expect(std::to_string(read) + " of " + std::to_string(count) + " damaged files were read",
         read > count / 50 && read < count / 2);
}

}    // namespace

int main(int argc, char **argv)
{
  check_forms();
  check_refusals();
  check_damage(argc > 1 ? std::atoi(argv[1]) : 1000, argc > 2 ? std::atoi(argv[2]) : 0);
  return failures > 0;
}
