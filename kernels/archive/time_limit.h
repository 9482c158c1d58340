// SPDX-License-Identifier: GPL-2.0-or-later

// A limit for the code that a model file brings along, which may go on without an end. What runs it
// cannot be interrupted, so the process ends then.

#ifndef PWMLFF_ARCHIVE_TIME_LIMIT_H
#define PWMLFF_ARCHIVE_TIME_LIMIT_H

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace pwmlff {

/// Ends the process with status 1 and a line on stderr, unless it is destroyed in time.
class TimeLimit {
 public:
  /// @param what  of the line: "model file 'a.pt': its forward"
  explicit TimeLimit(std::string what);
  TimeLimit(const TimeLimit &) = delete;
  TimeLimit &operator=(const TimeLimit &) = delete;
  ~TimeLimit();

 private:
  void wait(double seconds);

  std::string what;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread thread;
};

}    // namespace pwmlff

extern "C" {

/// The same for other languages. @return what pwmlff_end_time_limit() takes
void *pwmlff_begin_time_limit(const char *what);
void pwmlff_end_time_limit(void *limit);
}

#endif
