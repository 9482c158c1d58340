/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Chemical symbols and atomic numbers.

#ifndef PWMLFF_ELEMENTS_H
#define PWMLFF_ELEMENTS_H

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace pair_pwmlff {

/// Symbols of the elements in the order of their atomic numbers (IUPAC 2016); index 0 is unused.
inline constexpr std::array<std::string_view, 119> ELEMENT_SYMBOLS = {
    "",   "H",  "He", "Li", "Be", "B",  "C",  "N",  "O",  "F",  "Ne", "Na", "Mg", "Al", "Si",
    "P",  "S",  "Cl", "Ar", "K",  "Ca", "Sc", "Ti", "V",  "Cr", "Mn", "Fe", "Co", "Ni", "Cu",
    "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y",  "Zr", "Nb", "Mo", "Tc", "Ru",
    "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I",  "Xe", "Cs", "Ba", "La", "Ce", "Pr",
    "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W",
    "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac",
    "Th", "Pa", "U",  "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf",
    "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og"};

/// Atomic number of a symbol ("Hf") or of a number in digits ("72"); 0 where it is neither.
inline int atomic_number(std::string_view name)
{
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size())
    return number > 0 && number < static_cast<int>(ELEMENT_SYMBOLS.size()) ? number : 0;
  for (std::size_t z = 1; z < ELEMENT_SYMBOLS.size(); ++z)
    if (ELEMENT_SYMBOLS[z] == name) return static_cast<int>(z);
  return 0;
}

/// Symbol of an atomic number; the number in digits where there is no such element.
inline std::string symbol(int number)
{
  if (number > 0 && number < static_cast<int>(ELEMENT_SYMBOLS.size()))
    return std::string(ELEMENT_SYMBOLS[number]);
  return std::to_string(number);
}

/// Symbols of a list of atomic numbers, separated by blanks.
template <typename Numbers> std::string symbols(const Numbers &numbers)
{
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + symbol(number);
  return text;
}

}    // namespace pair_pwmlff

#endif
