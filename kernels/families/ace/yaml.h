// SPDX-License-Identifier: GPL-2.0-or-later

// Reads the part of YAML that potentials are written in, front to back and without a tree: maps and
// sequences in block and flow style, sequences as keys, plain and quoted words, comments. Anchors,
// tags, several documents and keys marked by '?' are refused.
//
// What is read next is taken by one call: map() and sequence() call back for each entry, which has
// to be taken by the next such call, or by skip(). The depth is that of these calls.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// @throws std::runtime_error with the line of a place in a text that is read
[[noreturn]] void fail_in_line(std::string_view text, std::size_t at, const std::string &found,
                               const std::string &expected);

class Yaml {
 public:
  explicit Yaml(std::string_view text);

  /// @param entry  takes the value of a key: a word, or a sequence like "[0, 1]"
  void map(const std::function<void(std::string_view key)> &entry);
  void sequence(const std::function<void()> &entry);
  /// A word without its quotes.
  std::string_view word();
  /// A finite number, or .inf where that is allowed.
  double number(bool or_infinite = false);
  int integer(int least, int most);
  /// Append a sequence of numbers, or of sequences of them.
  void numbers(std::vector<double> &to);
  /// Likewise whole numbers.
  void integers(std::vector<int> &to, int least, int most);
  void skip();
  /// Whether a sequence is next.
  bool is_sequence();

  /// The numbers of a key like "0" or "[0, 1]".
  std::vector<int> key_integers(std::string_view key, std::size_t count, int most) const;

  /// After the outermost value.
  void expect_end();

  /// @throws std::runtime_error with the line that is read
  [[noreturn]] void fail(const std::string &found, const std::string &expected) const;

 private:
  struct Level;
  char peek() const { return at < text.size() ? text[at] : '\0'; }
  bool is_item() const;
  void skip_blank();
  void begin_value(bool item_at_parent);
  int column() const { return static_cast<int>(at - line_start); }
  std::string_view read_word();
  std::string_view read_key();
  void flow(char close, const std::function<void()> &entry);
  std::string found() const;

  const std::string_view text;
  std::size_t at = 0, line_start = 0;
  int parent = -1;    // column of the block that the next value is in
  int depth = 0;      // of flow style
  int level = 0;      // of both
};

}    // namespace pwmlff
