// SPDX-License-Identifier: GPL-2.0-or-later

#include "messages.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace pwmlff::models {
namespace {

// What an error says, for one of torch without its backtrace.
std::string message(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

}    // namespace

std::string in_quotes(const std::string &name) { return "'" + name + "'"; }

std::string first_line(const std::exception &error)
{
  std::istringstream text(message(error));
  std::string first;
  while (first.empty() && std::getline(text, first)) {
  }
  return first;
}

std::string last_line(const std::exception &error)
{
  std::istringstream text(message(error));
  std::string last;
  for (std::string line; std::getline(text, line);)
    if (line.find_first_not_of(" \t\r~<") != std::string::npos) last = line;
  return last;
}

}    // namespace pwmlff::models
