// SPDX-License-Identifier: GPL-2.0-or-later

// What a pickle says, without doing it: nothing is imported and nothing is called.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// A value in a pickle. Texts are views into the pickle.
struct PickleValue {
  enum class Tag {
    none,
    boolean,
    integer,
    real,         // whose value nobody asks for
    text,         // also bytes, and integers that are longer than 8 bytes
    global,       // text is "module name", with the line end between them
    list,         // also tuple and set
    dict,         // items are key, value, key, value, ...
    object,       // items: what is called or made, its arguments, and its state if it is given one
    persistent    // items: the identifier
  };
  Tag tag = Tag::none;
  std::int64_t integer = 0;
  std::string_view text;
  std::vector<const PickleValue *> items;
  std::uint32_t index = 0;    // in values()
};

/// A pickle of protocol 2 to 5.
class Pickle {
 public:
  enum class Writer {
    torch,    // of archives: torch's own, which writes few operations
    python    // of torch.save: all operations but those for buffers and registered extensions
  };

  /// @param bytes  of the pickle; they have to stay where they are
  /// @throws Unusable where it would take gigabytes of memory to make
  /// @throws std::runtime_error where it is none, or has operations that its writer does not write
  Pickle(std::string_view bytes, Writer writer);

  /// @throws Unusable where values are in each other so deeply that what destroys them, which calls
  ///         itself, exhausts the stack
  /// @throws std::runtime_error where one is in itself, which torch writes no archive of
  void check_depth() const;

  const PickleValue &root() const { return *root_; }

  /// All values, in the order in which they were made.
  const std::deque<PickleValue> &values() const { return values_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue *root_ = nullptr;
};

}    // namespace pwmlff
