// SPDX-License-Identifier: GPL-2.0-or-later

// Rows of some atoms to a buffer in which they follow each other, and from there.

#pragma once

#include "../team.h"

#include <cstdint>

namespace pwmlff {

enum class RowMove { pack, set, add };

/// An item is an atom, and none is there twice.
template <class T> struct MoveRows {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MoveRows";

  RowMove move;
  const int *row_of_atom;
  const int *atom;    // [items], or null: those from first on
  int first;
  std::int64_t width, buffer_width;    // from one row to the next
  T *rows, *buffer;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t row = row_of_atom[atom ? atom[item] : first + item];
    T *const of_row = rows + row * width, *const packed = buffer + item * buffer_width;
    for (std::int64_t k = team.lane(); k < width; k += team.lanes()) {
      if (move == RowMove::pack) packed[k] = of_row[k];
      else if (move == RowMove::set) of_row[k] = packed[k];
      else of_row[k] += packed[k];
    }
  }
};

}    // namespace pwmlff
