// SPDX-License-Identifier: GPL-2.0-or-later

// Arrays of float64 and lines of text by name: what networks (family.h) are read from and written
// as. Model files, records and training have all of them in this form.
//
//   pwmlff-FAMILY 1              what they are of, and the number of this form
//   text NAME TEXT               one line each
//   array NAME DIMENSION...      shapes; a number alone has no dimension
//   numbers
//   ...                          of all arrays in that order, low bytes first

#pragma once

#include "export.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// Row by row, the last index is the fastest.
struct Array {
  std::vector<std::size_t> shape;
  std::vector<double> values;
};

/// "[2, 3]"; a dimension below zero is "any".
template <class Dimensions> std::string shape_text(const Dimensions &shape)
{
  std::string list;
  for (const auto dimension : shape)
    list += (list.empty() ? "" : ", ") +
            (static_cast<std::ptrdiff_t>(dimension) < 0 ? "any" : std::to_string(dimension));
  return "[" + list + "]";
}

class PWMLFF_KERNELS_API Arrays {
 public:
  explicit Arrays(std::string family) : family_(std::move(family)) {}

  /// @throws std::runtime_error that says what is wrong with the contents
  static Arrays read(std::string_view contents);
  std::string written() const;

  /// Of which family (family.h) they are, or "record".
  const std::string &family() const { return family_; }

  bool has(const std::string &name) const { return arrays.contains(name); }

  /// @param shape  -1 stands for any length
  /// @throws std::runtime_error where there is no such array, or one of another shape
  const Array &get(const std::string &name, const std::vector<std::ptrdiff_t> &shape) const;
  double number(const std::string &name) const { return get(name, {}).values[0]; }
  /// @throws std::runtime_error where it is none, or out of this range
  int integer(const std::string &name, int least, int most) const;
  /// [any length] of such.
  std::vector<int> integers(const std::string &name, int least, int most) const;
  bool has_text(const std::string &name) const { return texts.contains(name); }
  /// Empty where there is none of this name.
  std::string text(const std::string &name) const;

  void set(const std::string &name, std::vector<std::size_t> shape, std::vector<double> values);
  void set(const std::string &name, double number) { set(name, {}, {number}); }
  void set(const std::string &name, const std::vector<int> &integers);
  /// What ends the line becomes a blank.
  void set_text(const std::string &name, std::string text);

  /// All that begins with a prefix, without it.
  Arrays part(const std::string &prefix, std::string family) const;
  void add(const std::string &prefix, const Arrays &part);

  /// By name.
  const std::map<std::string, Array> &all() const { return arrays; }
  /// How many numbers there are.
  std::size_t size() const;

 private:
  std::string family_;
  std::map<std::string, Array> arrays;
  std::map<std::string, std::string> texts;
};

/// A number that stands for an integer.
/// @throws std::runtime_error where it is none, or out of this range
PWMLFF_KERNELS_API int integer(double value, int least, int most, const std::string &name);

}    // namespace pwmlff
