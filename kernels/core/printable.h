// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include <string>
#include <string_view>

namespace pwmlff {

/// For messages: the beginning of a text, what is not printable replaced.
inline std::string printable(std::string_view text, std::size_t most = 60)
{
  std::string result;
  for (const char c : text.substr(0, most)) result += c >= ' ' && c < 127 ? c : '.';
  return result;
}

}    // namespace pwmlff
