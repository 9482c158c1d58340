// SPDX-License-Identifier: GPL-2.0-or-later

#include "arrays.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

constexpr std::string_view START = "pwmlff-", VERSION = " 1", LAST = "numbers";
constexpr std::size_t MOST_NUMBERS = std::size_t{1} << 31;

static_assert(std::endian::native == std::endian::little);

[[noreturn]] void fail(const std::string &text)
{
  throw std::runtime_error("its arrays for the fused engine: " + text);
}

/// Takes one line off the contents.
std::string_view next_line(std::string_view &contents)
{
  const std::size_t end = contents.find('\n');
  if (end == std::string_view::npos) fail("the table of arrays is cut off");
  const std::string_view line = contents.substr(0, end);
  contents.remove_prefix(end + 1);
  return line;
}

std::vector<std::size_t> shape_of(std::istringstream &words, const std::string &line)
{
  std::vector<std::size_t> shape;
  std::size_t size = 1, dimension = 0;
  while (words >> dimension) {
    if (dimension > MOST_NUMBERS || size * dimension > MOST_NUMBERS)
      fail("'" + line + "' is too large");
    size *= dimension;
    shape.push_back(dimension);
  }
  if (!words.eof()) fail("'" + line + "' is no line of the table");
  return shape;
}

std::size_t product(const std::vector<std::size_t> &shape)
{
  std::size_t size = 1;
  for (const std::size_t dimension : shape) size *= dimension;
  return size;
}

}    // namespace

Arrays Arrays::read(std::string_view contents)
{
  const std::string_view head = next_line(contents);
  if (!head.starts_with(START) || !head.ends_with(VERSION))
    fail("they begin with another line than '" + std::string(START) + "...'");
  Arrays result(
      std::string(head.substr(START.size(), head.size() - START.size() - VERSION.size())));
  std::vector<std::pair<std::string, std::size_t>> order;
  std::size_t bytes = 0;
  for (std::string line(next_line(contents)); line != LAST; line = next_line(contents)) {
    std::istringstream words(line);
    std::string word, name;
    words >> word >> name;
    if (name.empty() || (word != "array" && word != "text"))
      fail("'" + line + "' is no line of the table");
    if (word == "text") {
      std::string text;
      std::getline(words.ignore(1), text);
      if (!result.texts.emplace(name, std::move(text)).second) fail(name + " is there twice");
      continue;
    }
    Array array{shape_of(words, line), {}};
    order.emplace_back(name, product(array.shape) * sizeof(double));
    bytes += order.back().second;
    if (!result.arrays.emplace(name, std::move(array)).second) fail(name + " is there twice");
  }
  if (contents.size() != bytes)
    fail("there are " + std::to_string(contents.size()) + " bytes of numbers, expected " +
         std::to_string(bytes));
  for (const auto &[name, size] : order) {
    std::vector<double> &values = result.arrays.at(name).values;
    values.resize(size / sizeof(double));
    if (size > 0) std::memcpy(values.data(), contents.data(), size);
    contents.remove_prefix(size);
    if (!std::ranges::all_of(values, [](double value) { return std::isfinite(value); }))
      fail(name + " has values that are no numbers");
  }
  return result;
}

std::string Arrays::written() const
{
  std::string result = std::string(START) + family_ + std::string(VERSION) + "\n";
  for (const auto &[name, text] : texts) result += "text " + name + " " + text + "\n";
  for (const auto &[name, array] : arrays) {
    result += "array " + name;
    for (const std::size_t dimension : array.shape) result += " " + std::to_string(dimension);
    result += "\n";
  }
  result += std::string(LAST) + "\n";
  for (const auto &[name, array] : arrays)
    result.append(reinterpret_cast<const char *>(array.values.data()),
                  array.values.size() * sizeof(double));
  return result;
}

const Array &Arrays::get(const std::string &name, const std::vector<std::ptrdiff_t> &shape) const
{
  const auto found = arrays.find(name);
  if (found == arrays.end()) fail(name + " is missing");
  const std::vector<std::size_t> &given = found->second.shape;
  const auto fits = [](std::ptrdiff_t wanted, std::size_t is) {
    return wanted < 0 || is == static_cast<std::size_t>(wanted);
  };
  if (!std::ranges::equal(shape, given, fits))
    fail(name + " has shape " + shape_text(given) + ", expected " + shape_text(shape));
  return found->second;
}

int Arrays::integer(const std::string &name, int least, int most) const
{
  return pwmlff::integer(number(name), least, most, name);
}

std::vector<int> Arrays::integers(const std::string &name, int least, int most) const
{
  std::vector<int> result;
  for (const double value : get(name, {-1}).values)
    result.push_back(pwmlff::integer(value, least, most, name));
  return result;
}

std::string Arrays::text(const std::string &name) const
{
  const auto found = texts.find(name);
  return found == texts.end() ? "" : found->second;
}

void Arrays::set(const std::string &name, std::vector<std::size_t> shape,
                 std::vector<double> values)
{
  arrays[name] = {std::move(shape), std::move(values)};
}

void Arrays::set(const std::string &name, const std::vector<int> &integers)
{
  set(name, {integers.size()}, {integers.begin(), integers.end()});
}

void Arrays::set_text(const std::string &name, std::string text)
{
  std::ranges::replace(text, '\n', ' ');
  texts[name] = std::move(text);
}

Arrays Arrays::part(const std::string &prefix, std::string family) const
{
  Arrays result(std::move(family));
  for (const auto &[name, array] : arrays)
    if (name.starts_with(prefix)) result.arrays.emplace(name.substr(prefix.size()), array);
  for (const auto &[name, text] : texts)
    if (name.starts_with(prefix)) result.texts.emplace(name.substr(prefix.size()), text);
  return result;
}

void Arrays::add(const std::string &prefix, const Arrays &part)
{
  for (const auto &[name, array] : part.arrays) arrays[prefix + name] = array;
  for (const auto &[name, text] : part.texts) texts[prefix + name] = text;
}

std::size_t Arrays::size() const
{
  std::size_t numbers = 0;
  for (const auto &[name, array] : arrays) numbers += array.values.size();
  return numbers;
}

int integer(double value, int least, int most, const std::string &name)
{
  if (value < least || value > most || value != std::floor(value))
    fail(name + " is " + std::to_string(value) + ", expected an integer from " +
         std::to_string(least) + " to " + std::to_string(most));
  return static_cast<int>(value);
}

}    // namespace pwmlff
