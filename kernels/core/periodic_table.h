// SPDX-License-Identifier: GPL-2.0-or-later

// Chemical symbols, atomic numbers and weights.

#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

namespace pwmlff {

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

/// Standard atomic weights in g/mol, to two decimals or four digits (IUPAC 2016,
/// doi:10.1515/pac-2016-0402); the mass number of the longest-lived isotope where there is none.
/// Index 0 is unused.
inline constexpr std::array<double, 119> ATOMIC_WEIGHTS = {
    0,      1.008,  4.003,  6.94,   9.012,  10.81,  12.01,  14.01,  16,     19,     20.18,  22.99,
    24.3,   26.98,  28.09,  30.97,  32.06,  35.45,  39.95,  39.1,   40.08,  44.96,  47.87,  50.94,
    52,     54.94,  55.84,  58.93,  58.69,  63.55,  65.38,  69.72,  72.63,  74.92,  78.97,  79.9,
    83.8,   85.47,  87.62,  88.91,  91.22,  92.91,  95.95,  97.91,  101.07, 102.91, 106.42, 107.87,
    112.41, 114.82, 118.71, 121.76, 127.6,  126.9,  131.29, 132.91, 137.33, 138.91, 140.12, 140.91,
    144.24, 144.91, 150.36, 151.96, 157.25, 158.93, 162.5,  164.93, 167.26, 168.93, 173.05, 174.97,
    178.49, 180.95, 183.84, 186.21, 190.23, 192.22, 195.08, 196.97, 200.59, 204.38, 207.2,  208.98,
    208.98, 209.99, 222.02, 223.02, 226.03, 227.03, 232.04, 231.04, 238.03, 237.05, 244.06, 243.06,
    247.07, 247.07, 251.08, 252.08, 257.1,  258.1,  259.1,  262.11, 267.12, 268.13, 271.13, 270.13,
    269.13, 278.16, 281.17, 281.17, 285.18, 286.18, 289.19, 289.19, 293.2,  293.21, 294.21};

/// Atomic number of a symbol in any case ("Hf", "HF") or of a number in digits ("72"); 0 where it
/// is neither.
inline int atomic_number(std::string_view name)
{
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size())
    return number > 0 && number < static_cast<int>(ELEMENT_SYMBOLS.size()) ? number : 0;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (std::size_t z = 1; z < ELEMENT_SYMBOLS.size(); ++z)
    if (std::ranges::equal(ELEMENT_SYMBOLS[z], name, same)) return static_cast<int>(z);
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

}    // namespace pwmlff
