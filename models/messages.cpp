// SPDX-License-Identifier: GPL-2.0-or-later

#include "messages.h"

#include <sstream>

namespace pwmlff::models {

std::string in_quotes(const std::string &name) { return "'" + name + "'"; }

std::string first_line(const std::exception &error)
{
  std::istringstream text(error.what());
  std::string first;
  while (first.empty() && std::getline(text, first)) {
  }
  return first;
}

}    // namespace pwmlff::models
