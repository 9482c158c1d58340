// SPDX-License-Identifier: GPL-2.0-or-later

#include "yaml.h"

#include "../../core/printable.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0'; }

template <class Number> bool parse_number(std::string_view word, Number &value)
{
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

}    // namespace

void fail_in_line(std::string_view text, std::size_t at, const std::string &found,
                  const std::string &expected)
{
  const std::string_view before = text.substr(0, at);
  throw std::runtime_error(
      "cannot be read as an ACE: in line " + std::to_string(1 + std::ranges::count(before, '\n')) +
      " found " + found + ", expected " + expected +
      "; copy the file again, or write it again with the program that made it");
}

Yaml::Yaml(std::string_view text) : text(text)
{
  if (text.starts_with("\xef\xbb\xbf")) at = line_start = 3;
  skip_blank();
  if (text.substr(at).starts_with("---")) at += 3;
}

void Yaml::fail(const std::string &found, const std::string &expected) const
{
  fail_in_line(text, at, found, expected);
}

std::string Yaml::found() const
{
  if (at >= text.size()) return "the end of the file";
  const std::string_view rest = text.substr(at, 40);
  return "'" + printable(rest.substr(0, rest.find('\n'))) + "'";
}

/// Blanks, line ends and comments.
void Yaml::skip_blank()
{
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#' && (at == 0 || is_space(text[at - 1]))) {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '\n') {
      line_start = ++at;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else {
      break;
    }
  }
}

bool Yaml::is_item() const
{
  return peek() == '-' && (at + 1 >= text.size() || is_space(text[at + 1]));
}

/// Go to a value, which in block style is indented more than what holds it.
void Yaml::begin_value(bool item_at_parent)
{
  skip_blank();
  const int least = parent + (item_at_parent && is_item() ? 0 : 1);
  if (at >= text.size() || (depth == 0 && column() < least)) fail(found(), "a value");
  if (std::string_view("&*!|>%@`?").find(peek()) != std::string_view::npos)
    fail(found(), "YAML without anchors, tags and marked keys");
}

std::string_view Yaml::read_word()
{
  const char quote = peek();
  if (quote == '"' || quote == '\'') {
    const std::size_t end = text.find(quote, at + 1);
    if (end == std::string_view::npos) fail(found(), "an end of the quotes");
    const std::string_view word = text.substr(at + 1, end - at - 1);
    if (word.find_first_of("\\\n") != std::string_view::npos)
      fail(found(), "quotes around plain text in one line");
    at = end + 1;
    return word;
  }
  const std::size_t first = at;
  std::size_t end = at;
  for (; at < text.size() && text[at] != '\n'; ++at) {
    const char c = text[at];
    if (depth > 0 && (c == ',' || c == ']' || c == '}' || c == '[' || c == '{')) break;
    if (c == ':' && (at + 1 >= text.size() || is_space(text[at + 1]))) break;
    if (c == '#' && at > first && is_space(text[at - 1])) break;
    if (!is_space(c)) end = at + 1;
  }
  if (end == first) fail(found(), "a word");
  return text.substr(first, end - first);
}

std::string_view Yaml::word()
{
  begin_value(false);
  return read_word();
}

/// With the colon behind it.
std::string_view Yaml::read_key()
{
  std::string_view key;
  const std::size_t first = at;
  if (peek() == '[') {
    at = text.find_first_of("]\n", at);
    if (at >= text.size() || text[at] != ']') at = first, fail(found(), "a key");
    key = text.substr(first, ++at - first);
  } else {
    key = read_word();
  }
  while (peek() == ' ') ++at;
  if (peek() != ':') fail("'" + printable(key) + "' and then " + found(), "a key with a colon");
  ++at;
  return key;
}

/// One call of map() or sequence() within others.
struct Yaml::Level {
  explicit Level(Yaml &yaml) : yaml(yaml)
  {
    if (++yaml.level > 16) yaml.fail("16 levels", "fewer");
  }
  ~Level() { --yaml.level; }
  Yaml &yaml;
};

/// Entries between commas up to the closing bracket.
void Yaml::flow(char close, const std::function<void()> &entry)
{
  ++at;
  ++depth;
  for (bool first = true;; first = false) {
    skip_blank();
    if (!first && peek() == ',') {
      ++at;
      skip_blank();
    } else if (!first && peek() != close) {
      fail(found(), std::string("a comma or '") + close + "'");
    }
    if (peek() == close) break;
    entry();
  }
  ++at;
  --depth;
}

void Yaml::map(const std::function<void(std::string_view key)> &entry)
{
  begin_value(false);
  const Level level(*this);
  if (peek() == '{') return flow('}', [&] { entry(read_key()); });
  if (depth > 0 || is_item()) fail(found(), "keys with values");
  const int here = column(), outside = std::exchange(parent, here);
  for (; at < text.size() && column() == here && !is_item(); skip_blank()) entry(read_key());
  if (at < text.size() && column() > here) fail(found(), "keys below each other");
  parent = outside;
}

void Yaml::sequence(const std::function<void()> &entry)
{
  begin_value(true);
  const Level level(*this);
  if (peek() == '[') return flow(']', entry);
  if (depth > 0 || !is_item()) fail(found(), "a sequence");
  const int here = column(), outside = std::exchange(parent, here);
  for (; at < text.size() && column() == here && is_item(); skip_blank()) {
    ++at;
    entry();
  }
  if (at < text.size() && column() > here) fail(found(), "items below each other");
  parent = outside;
}

double Yaml::number(bool or_infinite)
{
  const std::string_view found = word();
  double value = 0.0;
  if (or_infinite && (found == ".inf" || found == ".Inf" || found == ".INF")) return HUGE_VAL;
  if (!parse_number(found, value) || !std::isfinite(value))
    fail("'" + printable(found) + "'", "a finite number");
  return value;
}

int Yaml::integer(int least, int most)
{
  const std::string_view found = word();
  int value = 0;
  if (!parse_number(found, value) || value < least || value > most)
    fail("'" + printable(found) + "'",
         "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

void Yaml::numbers(std::vector<double> &to)
{
  sequence([&] {
    if (is_sequence()) numbers(to);
    else to.push_back(number());
  });
}

bool Yaml::is_sequence()
{
  skip_blank();
  return peek() == '[' || (depth == 0 && is_item());
}

void Yaml::integers(std::vector<int> &to, int least, int most)
{
  sequence([&] { to.push_back(integer(least, most)); });
}

void Yaml::skip()
{
  skip_blank();
  if (depth == 0 && column() <= parent && !(column() == parent && is_item())) return;    // no value
  if (depth == 0 && peek() != '[' && peek() != '{') {    // up to what is indented less
    const int least = is_item() ? column() : parent + 1;
    while (at < text.size() && (column() >= least)) {
      at = std::min(text.find('\n', at), text.size());
      skip_blank();
      if (least == parent && column() == least && !is_item()) break;
    }
    return;
  }
  std::string open;
  do {
    skip_blank();
    const char c = peek();
    if (at >= text.size()) fail(found(), "closed brackets");
    if (c == '"' || c == '\'') {
      read_word();
    } else if ((c == ',' || c == ']' || c == '}') && open.empty()) {
      return;
    } else {
      if (c == '[' || c == '{') open += c == '[' ? ']' : '}';
      if (c == ']' || c == '}') {
        if (open.back() != c) fail(found(), "matching brackets");
        open.pop_back();
      }
      ++at;
      if (depth == 0 && open.empty()) return;
    }
  } while (true);
}

std::vector<int> Yaml::key_integers(std::string_view key, std::size_t count, int most) const
{
  std::vector<int> result;
  std::string_view rest = key;
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of("[], "), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_of("[], "));
    rest.remove_prefix(word.size());
    int value = -1;
    if (word.empty()) continue;
    if (!parse_number(word, value) || value < 0 || value > most) value = -1;
    result.push_back(value);
  }
  if (result.size() != count || std::ranges::find(result, -1) != result.end())
    fail("the key '" + printable(key) + "'",
         count == 1 ? "the number of an element, 0 to " + std::to_string(most)
                    : "the numbers of two elements, 0 to " + std::to_string(most));
  return result;
}

void Yaml::expect_end()
{
  skip_blank();
  if (text.substr(at).starts_with("...")) {
    at += 3;
    skip_blank();
  }
  if (at < text.size()) fail(found(), "the end of the file");
}

}    // namespace pwmlff
