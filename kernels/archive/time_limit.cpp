// SPDX-License-Identifier: GPL-2.0-or-later

#include "time_limit.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <system_error>

namespace pwmlff {
namespace {

constexpr const char *VARIABLE = "PWMLFF_TRIAL_SECONDS";
constexpr double SECONDS = 300.0;    // evaluations of a few atoms, on a machine that is busy
constexpr double MOST = 1e8;         // years; clocks count nanoseconds in 64 bits
// For the text to get through a launcher before that knows of the end.
constexpr std::chrono::milliseconds GRACE(300);

double seconds_allowed()
{
  const char *const text = std::getenv(VARIABLE);
  const double given = text ? std::strtod(text, nullptr) : 0.0;
  return given > 0.0 ? std::min(given, MOST) : SECONDS;
}

void wait(const std::stop_token &stopped, const std::string &what, double seconds)
{
  std::mutex mutex;
  std::unique_lock lock(mutex);
  const auto limit = std::chrono::duration<double>(seconds);
  std::condition_variable_any().wait_for(lock, stopped, limit, [] { return false; });
  if (stopped.stop_requested()) return;
  std::fprintf(stderr,
               "ERROR: %s has not come to an end within %g seconds; look for a loop in its code "
               "that never ends. Environment variable %s allows more\n",
               what.c_str(), seconds, VARIABLE);
  std::fflush(stderr);
  std::this_thread::sleep_for(GRACE);
  std::_Exit(1);
}

}    // namespace

TimeLimit::TimeLimit(std::string what) : thread(wait, std::move(what), seconds_allowed()) {}

}    // namespace pwmlff

void *pwmlff_begin_time_limit(const char *what)
try {
  return new pwmlff::TimeLimit(what);
} catch (const std::system_error &) {    // no thread can be had: without a limit then
  return nullptr;
}

void pwmlff_end_time_limit(void *limit) { delete static_cast<pwmlff::TimeLimit *>(limit); }
