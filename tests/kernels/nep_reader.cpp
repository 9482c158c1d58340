// SPDX-License-Identifier: GPL-2.0-or-later

// Files of all forms of nep.txt whose numbers are 1, 2, 3, ..: where each of them ends up is
// compared with the order that docs/nep.md states. Then files that are refused. Exits with 1 where
// something differs.

#include "families/nep/read_nep.h"

#include <cmath>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;

int failures = 0;

void expect(const std::string &what, double found, double wanted)
{
  if (std::abs(found - wanted) <= 1e-12 * std::abs(wanted)) return;
  std::cout << what << " is " << found << ", expected " << wanted << "\n";
  ++failures;
}

/// Numbers 1 .. count, behind a head.
std::string file(const std::string &head, int count)
{
  std::string text = head;
  for (int k = 1; k <= count; ++k) text += "  " + std::to_string(k) + ".0e0\n";
  return text;
}

// Two elements, 2 + 3 functions of 3 + 4 terms, l_max 1 and (222): D = 2 + 3*2 = 8.
constexpr const char *BODY = "n_max 1 2\nbasis_size 2 3\nl_max 1 2 0\n";
constexpr int D = 8, RADIAL = 4 * 2 * 3, ANGULAR = 4 * 3 * 4, H = 5;
constexpr int NETWORK = (D + 2) * H;

void check_coefficients(const std::string &what, const NepNetwork &network, int before)
{
  // c[n, k, a, b] in the file
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 2; ++b) {
      for (int n = 0; n < 2; ++n)
        for (int k = 0; k < 3; ++k)
          expect(what + ": c_radial", network.c_radial[((a * 2 + b) * 2 + n) * 3 + k],
                 before + 1 + ((n * 3 + k) * 2 + a) * 2 + b);
      for (int n = 0; n < 3; ++n)
        for (int k = 0; k < 4; ++k)
          expect(what + ": c_angular", network.c_angular[((a * 2 + b) * 3 + n) * 4 + k],
                 before + RADIAL + 1 + ((n * 4 + k) * 2 + a) * 2 + b);
    }
  for (int d = 0; d < D; ++d)
    expect(what + ": q_scaler", network.q_scaler[d], before + RADIAL + ANGULAR + 1 + d);
}

void check_layers()
{
  const std::string tail = std::string("cutoff 6 5 90 60\n") + BODY + "ANN 5 0\n";
  const int rest = RADIAL + ANGULAR + D;

  NepNetwork n3 = read_nep(file("nep3 2 O Hf\n" + tail, NETWORK + 1 + rest));
  NepNetwork n4 = read_nep(file("nep4 2 O Hf\n" + tail, 2 * NETWORK + 1 + rest));
  NepNetwork n5 = read_nep(file("nep5 2 O Hf\n" + tail, 2 * (NETWORK + 1) + 1 + rest));
  NepNetwork matpl = read_nep(file("nep4   2 O Hf \n" + tail, 2 * NETWORK + 2 + rest));
  check_coefficients("nep3", n3, NETWORK + 1);
  check_coefficients("nep4", n4, 2 * NETWORK + 1);
  check_coefficients("nep5", n5, 2 * NETWORK + 3);
  check_coefficients("MatPL's nep4", matpl, 2 * NETWORK + 2);

  for (int s = 0; s < 2; ++s)
    for (const NepNetwork *network : {&n3, &n4, &n5, &matpl}) {
      const int first = (network->version == 3 ? 0 : s * (NETWORK + (network->version == 5)));
      for (int h = 0; h < H; ++h) {
        for (int d = 0; d < D; ++d)
          expect("weight0", network->weight0[(s * H + h) * D + d], first + h * D + d + 1);
        expect("bias0", network->bias0[s * H + h], -(first + H * D + h + 1));
        expect("last", network->last[s * H + h], first + H * D + H + h + 1);
      }
      expect("largest_degree", network->largest_degree(), 2);    // of (222), with l_max 1
    }
  for (int s = 0; s < 2; ++s) {
    expect("shift of nep3", n3.shift[s], -(NETWORK + 1));
    expect("shift of nep4", n4.shift[s], -(2 * NETWORK + 1));
    expect("shift of nep5", n5.shift[s], -(NETWORK + 1) * (s + 1) - (2 * NETWORK + 3));
    expect("shift of MatPL's nep4", matpl.shift[s], -(2 * NETWORK + 1 + s));
  }

  const int two = (D + 1) * 5 + (5 + 2) * 4;
  const NepNetwork layers = read_nep(
      file(std::string("nep4 2 O Hf\ncutoff 6 5\n") + BODY + "ANN 5 4\n", 2 * two + 1 + rest));
  check_coefficients("two layers", layers, 2 * two + 1);
  for (int s = 0; s < 2; ++s)
    for (int g = 0; g < 4; ++g) {
      const int first = s * two + (D + 1) * 5;
      for (int h = 0; h < 5; ++h)
        expect("weight1", layers.weight1[(s * 4 + g) * 5 + h], first + g * 5 + h + 1);
      expect("bias1", layers.bias1[s * 4 + g], -(first + 20 + g + 1));
      expect("last of two", layers.last[s * 4 + g], first + 24 + g + 1);
    }
}

/// A model of two elements without angular part, with this head up to its cutoffs.
NepNetwork plain(const std::string &head, int more = 0)
{
  return read_nep(
      file(head + "n_max 0 0\nbasis_size 0 0\nl_max 0 0 0\nANN 1 0\n", 2 * 3 + 1 + 4 + 1 + more));
}

void check_cutoffs()
{
  for (const char *line : {"cutoff 6 5\n", "cutoff 6 5 10 10\n", "cutoff 6 5 10 10 -1 0 0\n"}) {
    const NepNetwork one = plain(std::string("nep4 2 O Hf\n") + line);
    expect("cut_radial", one.cut_radial[1], 6.0);
    expect("cut_angular", one.cut_angular[1], 5.0);
    expect("without angular part, cutoff", one.cutoff(), 6.0);
    expect("without angular part, c_angular", one.c_angular.size(), 0);
  }
  expect("c_angular in the file", plain("nep4 2 O Hf\ncutoff 6 5\n", 4).c_angular.size(), 0);
  const NepNetwork each = plain("nep4 2 O Hf\ncutoff 6 5 4 3 10 10\n");
  expect("cutoff of O-O", each.cut_radial[0], 6.0);
  expect("cutoff of O-Hf", each.cut_radial[1], 5.0);
  expect("cutoff of Hf-O", each.cut_angular[2], 4.0);
  expect("cutoff of Hf-Hf", each.cut_angular[3], 3.0);

  // radii of O and Hf 0.84 and 1.82667
  const NepNetwork factors = plain("nep4_zbl 2 O Hf\nzbl 1 2\ncutoff 6 5 10 10 2 1.5 0.7\n");
  expect("cutoff of O-O by radii", factors.cut_radial[0], 3.36);
  expect("cutoff of O-Hf by radii", factors.cut_angular[1], 1.5 * 2.66667);
  expect("cutoff of Hf-Hf by radii", factors.cut_radial[3], 6.0);
  expect("ZBL of O-O by radii", factors.zbl[0].outer, 0.7 * 1.68);
  expect("ZBL of O-O by radii, inner", factors.zbl[0].inner, 0.35 * 1.68);
}

void check_zbl()
{
  const NepNetwork universal = plain("nep4_zbl 2 O Hf\nzbl 1.25 2.5\ncutoff 6 5\n");
  const double scale = 2.134563 * (std::pow(8, 0.23) + std::pow(72, 0.23));
  expect("inner", universal.zbl[1].inner, 1.25);
  expect("outer", universal.zbl[2].reach, 2.5);
  expect("amplitude", universal.zbl[1].amplitude[1], 14.399645 * 8 * 72 * 0.50986);
  expect("decay", universal.zbl[2].decay[3], scale * 0.20162);
  const NepNetwork typewise = plain("nep4_zbl 2 O Hf\nzbl 1.25 2.5 0.7\ncutoff 6 5\n");
  expect("inner, typewise", typewise.zbl[1].inner, 0.0);
  expect("outer, typewise", typewise.zbl[1].outer, 0.7 * 2.66667);
  expect("outer, typewise, of Hf", typewise.zbl[3].outer, 2.5);
  const NepNetwork capped = plain("nep4_zbl 2 O Hf\nzbl 1 2\ncutoff 6 1.5\n");
  expect("reach", capped.zbl[0].reach, 1.5);
  expect("warnings", capped.warnings.size(), 1);
  expect("warnings without a jump", universal.warnings.size(), 0);

  std::string head = "nep5_zbl_temperature 2 O Hf\nzbl 0 0\ncutoff 40 35\nn_max 0 0\n"
                     "basis_size 0 0\nl_max 0 0 0\nANN 1 0\n";
  const int before = 2 * 5 + 1 + 4 + 4 + 2;
  const NepNetwork flexible = read_nep(file(head, before + 30));
  expect("temperature", flexible.temperature, 1);
  expect("q_scaler of the temperature", flexible.q_scaler[1], before);
  expect("flexible O-Hf, inner", flexible.zbl[1].inner, before + 11);
  expect("flexible O-Hf, outer", flexible.zbl[2].outer, before + 12);
  expect("flexible O-Hf, a", flexible.zbl[1].amplitude[1], 14.399645 * 8 * 72 * (before + 15));
  expect("flexible O-Hf, b", flexible.zbl[1].decay[1], scale * (before + 16));
  expect("flexible Hf-Hf, inner", flexible.zbl[3].inner, before + 21);
}

template <class Error> void expect_refusal(const std::string &text, const std::string &words)
{
  std::string said = "nothing";
  try {
    read_nep(text);
  } catch (const Error &error) {
    said = error.what();
  }
  if (said.find(words) != std::string::npos) return;
  std::cout << "refused with: " << said << "\n  expected: " << words << "\n";
  ++failures;
}

void check_refusals()
{
  const std::string head = "nep4 2 O Hf\ncutoff 6 5\n\nn_max 0 0\nbasis_size 0 0\nl_max 0 0 0\n"
                           "ANN 1 0\n";
  const int right = 2 * 3 + 1 + 4 + 1;
  expect_refusal<std::runtime_error>(file(head, right - 1), "in line 18 found the end");
  expect_refusal<std::runtime_error>(file(head, right + 6), "in line 25 found '18.0e0'");
  expect_refusal<std::runtime_error>(file(head, 3) + "nan\n", "in line 11 found 'nan'");
  expect_refusal<std::runtime_error>(file(head, 3) + "1e400\n", "in line 11 found '1e400'");
  expect_refusal<std::runtime_error>(file(head, 3) + "1 2\n", "expected one number");
  expect_refusal<std::runtime_error>("nep4 2 O O\n", "'O' twice");
  expect_refusal<std::runtime_error>("nep4 1 Q\n", "in line 1 found 'Q'");
  expect_refusal<std::runtime_error>("nep4_zbl 1 C\ncutoff 6 5\n", "expected 'zbl");
  expect_refusal<std::runtime_error>("nep4 1 C\nzbl 1 2\n", "expected 'cutoff");
  expect_refusal<std::runtime_error>("nep4 1 C\ncutoff 6 inf\n", "in line 2 found 'inf'");
  expect_refusal<std::runtime_error>("nep4 1 C\ncutoff 6\n", "not 1 values");
  expect_refusal<std::runtime_error>("nep4 1 C\ncutoff 6 -5\n", "from 0.01 to 100");
  expect_refusal<std::runtime_error>("nep4_zbl 1 C\nzbl 2 1\n", "INNER < OUTER");
  expect_refusal<std::runtime_error>("nep4_zbl 1 Am\nzbl 1 2 0.7\ncutoff 6 5\nn_max 0 0\n"
                                     "basis_size 0 0\nl_max 0 0 0\nANN 1 0\n1\n1\n1\n1\n1\n1\n",
                                     "in line 2 found a cutoff by covalent radii for Am");
  expect_refusal<std::runtime_error>("", "found no text");
  expect_refusal<std::runtime_error>("nep4_zbl_zbl 1 C\n", "found 'nep4_zbl_zbl'");
  expect_refusal<std::runtime_error>("nep4_ 1 C\n", "found 'nep4_'");
  for (const std::string name :
       {"nep3_dipole", "nep4_polarizability", "nep4_zbl_charge3", "nep5_charge3", "nep4_vdw",
        "nep4_charge_vdw", "nep4_spin2", "nep_ilp"}) {
    expect_refusal<std::invalid_argument>(name + " 1 C\n", "line 1 says '" + name + "', wh");
    expect(name, looks_like_nep(name), 1);
  }
  expect("looks_like_nep", looks_like_nep(" nep4 2"), 1);
  for (const char *other : {"", "nep", "neptune", "PK\x03\x04", "version https://git-lfs"})
    expect(other, looks_like_nep(other), 0);
}

/// A file of 89 elements, as large as the largest one that is published.
void check_many_elements()
{
  std::string head = "nep4_zbl 89";
  for (const char *symbol :
       {"H",  "He", "Li", "Be", "B",  "C",  "N",  "O",  "F",  "Ne", "Na", "Mg", "Al", "Si", "P",
        "S",  "Cl", "Ar", "K",  "Ca", "Sc", "Ti", "V",  "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn",
        "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y",  "Zr", "Nb", "Mo", "Tc", "Ru", "Rh",
        "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I",  "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd",
        "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W",  "Re",
        "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Ac", "Th", "Pa", "U",  "Np", "Pu"})
    head += std::string(" ") + symbol;
  head += "\nzbl 1 2\ncutoff 6 5 1000 500\nn_max 4 4\nbasis_size 8 8\nl_max 4 2 1\nANN 80 0\n";
  const int d = 5 + 5 * 6, count = 89 * (d + 2) * 80 + 1 + 89 * 89 * 2 * 5 * 9 + d;
  const NepNetwork network = read_nep(file(head, count));
  expect("the last number of 89 elements", network.q_scaler.back(), count);
  expect("pairs of 89 elements", network.zbl.size(), 89 * 89);
}

}    // namespace

int main()
{
  for (const std::function<void()> check :
       {check_layers, check_cutoffs, check_zbl, check_refusals, check_many_elements})
    check();
  return failures > 0;
}
