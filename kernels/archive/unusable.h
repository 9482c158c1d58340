// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include <stdexcept>
#include <string>

namespace pwmlff {

/// A file in which no damage was found, but something that is beyond what is used; the text says
/// what to do.
class Unusable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of a file that is damaged. @param what  where, for the message
[[noreturn]] inline void fail(const std::string &what) { throw std::runtime_error(what); }

}    // namespace pwmlff
