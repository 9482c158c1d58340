// SPDX-License-Identifier: GPL-2.0-or-later

// Files of ACE with random numbers, in the forms of pacemaker and of GRACE/FS. Rows have any m, so
// energies depend on directions, which finds more mistakes.

#pragma once

#include "comparison.h"

#include <sstream>
#include <string>
#include <vector>

namespace ace_files {

inline int whole(int low, int high) { return static_cast<int>(uniform(low, high + 1)); }

struct Form {
  std::vector<std::string> elements;
  std::string radial = "ChebExpCos", inner = "density";
  std::string embedding = "FinnisSinclairShiftedScaled";
  int ndensity = 1, nbase = 5, nradial = 3, l_max = 3;
  std::vector<int> ranks = {1, 1, 2, 2, 3, 4};    // of functions
  double rcut = 4.5, rcut_in = 1.6, dcut_in = 0.5;
  double prehc = 10.0;
  bool grace = false;
};

template <class Value> std::string list(int count, const Value &value)
{
  std::ostringstream text;
  text.precision(17);
  text << '[';
  for (int k = 0; k < count; ++k) text << (k ? ", " : "") << value(k);
  return text.str() + "]";
}

inline std::string parameters(const Form &form)
{
  return list(2 * form.ndensity, [](int k) { return k % 2 ? k == 1 ? 1.0 : 0.4 + 0.2 * k : 0.7; });
}

/// A function of pacemaker or of GRACE/FS, of some rows.
inline std::string function(const Form &form, int mu0, int rank)
{
  const int rows = rank == 1 ? 1 : whole(1, 4), n = static_cast<int>(form.elements.size());
  std::vector<int> l(rank);
  for (int &degree : l) degree = rank == 1 ? 0 : whole(0, form.l_max);
  std::ostringstream text;
  text << "{mu0: " << mu0 << ", ndensity: " << form.ndensity;
  if (!form.grace)
    text << ", rank: " << rank << ", num_ms_combs: " << rows
         << ", mus: " << list(rank, [&](int) { return whole(0, n - 1); }) << ", ns: "
         << list(rank, [&](int) { return whole(1, rank == 1 ? form.nbase : form.nradial); });
  else text << ", ns: " << whole(1, form.nradial);
  text << ", ls: " << list(rank, [&](int t) { return l[t]; }) << ", ms_combs: "
       << list(rank * rows, [&](int t) { return whole(-l[t % rank], l[t % rank]); });
  const auto number = [](int) { return uniform(-0.3, 0.3); };
  if (form.grace)
    text << ", gen_cgs: " << list(rows, number) << ", coeff: " << list(form.ndensity, number);
  else text << ", ctildes: " << list(rows * form.ndensity, number);
  return text.str() + "}";
}

inline std::string functions(const Form &form)
{
  std::string text = "functions:\n";
  for (int a = 0; a < static_cast<int>(form.elements.size()); ++a) {
    text += "  " + std::to_string(a) + ":\n";
    for (const int rank : form.ranks) text += "    - " + function(form, a, rank) + "\n";
  }
  return text;
}

inline std::string file(const Form &form)
{
  const int n = static_cast<int>(form.elements.size());
  std::ostringstream text;
  text.precision(17);
  text << "elements: " << list(n, [&](int k) { return form.elements[k]; }) << "\n"
       << "E0: " << list(n, [](int k) { return 0.5 * k - 1.0; }) << "\n";
  const int nl = form.nradial * (form.l_max + 1);
  const auto number = [](int) { return uniform(-0.4, 0.4); };
  if (form.grace) {
    text << "scale: 1.5\nshift: 0.25\nnnorm: 0.5\nemb_spec: {type: " << form.embedding
         << ", params: " << parameters(form)
         << "}\nradial_basis: {radbasename: SBessel, cutoff: " << form.rcut
         << ", nradmax: " << form.nradial << ", n_rad_base: " << form.nbase << ", crad_shape: ["
         << form.nradial << ", " << form.l_max + 1 << ", " << form.nbase << "], Z_shape: [" << n
         << ", " << form.nradial << "], Z: " << list(n * form.nradial, number)
         << ", crad: " << list(nl * form.nbase, number) << "}\n";
    return text.str() + functions(form);
  }
  text << "deltaSplineBins: 0.001\nembeddings:\n";
  for (int a = 0; a < n; ++a)
    text << "  " << a << ": {ndensity: " << form.ndensity << ", FS_parameters: " << parameters(form)
         << ", npoti: " << form.embedding << ", rho_core_cutoff: 12, drho_core_cutoff: 8}\n";
  text << "bonds:\n";
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < n; ++b)
      text << "  [" << a << ", " << b << "]: {nradmax: " << form.nradial << ", lmax: " << form.l_max
           << ", nradbasemax: " << form.nbase << ", radbasename: " << form.radial
           << ", radparameters: [" << 2.5 + 0.1 * a << "], radcoefficients: "
           << list(form.nradial,
                   [&](int) {
                     return list(form.l_max + 1, [&](int) { return list(form.nbase, number); });
                   })
           << ", prehc: " << form.prehc << ", lambdahc: 0.8, rcut: " << form.rcut - 0.2 * b
           << ", dcut: 0.3, rcut_in: " << form.rcut_in << ", dcut_in: " << form.dcut_in
           << ", inner_cutoff_type: " << form.inner << "}\n";
  return text.str() + functions(form);
}

/// Files of all forms.
inline std::vector<Form> forms()
{
  std::vector<Form> all;
  for (const char *radial : {"ChebExpCos", "ChebPow", "ChebLinear", "SBessel"})
    for (const char *inner : {"density", "distance", "zbl"}) {
      Form form{{"Hf", "O"}};
      form.radial = radial;
      form.inner = inner;
      form.ndensity = 1 + static_cast<int>(all.size() % 3);
      form.embedding = all.size() % 2 ? "FinnisSinclair" : "FinnisSinclairShiftedScaled";
      if (form.inner == "density") form.rcut_in = form.dcut_in = 0.0;
      if (form.inner == "zbl") form.prehc = 0.02;
      all.push_back(form);
    }
  Form one{{"Cu"}};
  one.ranks = {1, 2, 3, 4, 5, 6, 6};
  one.l_max = 8;
  one.nbase = 12;
  one.nradial = 7;
  one.prehc = 0.0;
  all.push_back(one);
  Form three{{"Hf", "O", "Zr"}};
  three.ranks = {2, 3, 3};
  three.ndensity = 2;
  three.l_max = 1;
  all.push_back(three);
  Form only{{"Cu", "Zr"}};
  only.ranks = {1, 1};
  all.push_back(only);
  Form grace{{"Al", "Ni"}};
  grace.grace = true;
  grace.ndensity = 2;
  grace.ranks = {1, 2, 3, 3, 4, 5};
  all.push_back(grace);
  return all;
}

}    // namespace ace_files
