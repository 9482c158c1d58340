// SPDX-License-Identifier: GPL-2.0-or-later

// Parts of messages.

#pragma once

#include <exception>
#include <string>

namespace pwmlff::models {

/// The name in quotes.
std::string in_quotes(const std::string &name);

/// First line of a message, for one of torch without its backtrace.
std::string first_line(const std::exception &error);

/// The last line that says something: TorchScript puts the call stack before the message.
std::string last_line(const std::exception &error);

}    // namespace pwmlff::models
