/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What a pickle says, without doing it: nothing is imported and nothing is called.

#ifndef PWMLFF_ARCHIVE_PICKLE_H
#define PWMLFF_ARCHIVE_PICKLE_H

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// A value in a pickle. Texts are views into the pickle.
struct PickleValue {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    text,         // also bytes
    global,       // text is "module name", with the line end between them
    list,         // also tuple and set
    dict,         // items are key, value, key, value, ...
    object,       // items: what is called or made, its arguments, and its state if it is given one
    persistent    // items: the identifier
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  double real = 0.0;
  std::string_view text;
  std::vector<const PickleValue *> items;
  int depth = 0;    // of what is in it

  bool is_global(std::string_view module, std::string_view name) const
  {
    return kind == Kind::global && text.size() == module.size() + 1 + name.size() &&
           text.substr(0, module.size()) == module && text.substr(module.size() + 1) == name;
  }
};

/// A pickle of protocol 2 to 5, as torch writes them.
class Pickle {
 public:
  /// @param bytes  of the pickle; they have to stay where they are
  /// @throws std::runtime_error where it is none, has operations that torch does not write, or would take
  ///         gigabytes of memory or a very deep stack to make
  explicit Pickle(std::string_view bytes);

  const PickleValue &root() const { return *root_; }

  /// All values, in the order in which they were made.
  const std::deque<PickleValue> &values() const { return values_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue *root_ = nullptr;
};

}    // namespace pwmlff

#endif
