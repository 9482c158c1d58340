// SPDX-License-Identifier: GPL-2.0-or-later

// Parts of messages.

#pragma once

#include <exception>
#include <string>

namespace pwmlff::models {

/// The name in quotes.
std::string in_quotes(const std::string &name);

/// First line of a message; one of torch has its backtrace behind that.
std::string first_line(const std::exception &error);

}    // namespace pwmlff::models
