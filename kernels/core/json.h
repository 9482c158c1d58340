// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include <string>
#include <string_view>

namespace pwmlff {

/// A text in JSON, of one line.
inline std::string json_text(std::string_view text)
{
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

inline std::string json_truth(bool value) { return value ? "true" : "false"; }

/// A list of what text(value) makes of the values.
template <class Values, class Text> std::string json_list(const Values &values, const Text &text)
{
  std::string result;
  for (const auto &value : values) result += (result.empty() ? "" : ", ") + text(value);
  return "[" + result + "]";
}

}    // namespace pwmlff
