// SPDX-License-Identifier: GPL-2.0-or-later

// A limit for the code that a model file brings along, which may go on without an end. What runs it
// cannot be interrupted, so the process ends then.

#pragma once

#include <string>
#include <thread>

namespace pwmlff {

/// Ends the process with status 1 and a line on stderr, unless it is destroyed in time.
class TimeLimit {
 public:
  /// @param what  of the line: "model file 'a.pt': its forward"
  explicit TimeLimit(std::string what);

 private:
  std::jthread thread;
};

}    // namespace pwmlff

extern "C" {

/// The same for other languages. @return what pwmlff_end_time_limit() takes
void *pwmlff_begin_time_limit(const char *what);
void pwmlff_end_time_limit(void *limit);
}
