// SPDX-License-Identifier: GPL-2.0-or-later

#include "threads.h"

#include <pthread.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

std::atomic<bool> forked = false;

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });

}    // namespace

int usable_threads(int wanted) { return forked ? 1 : wanted; }

OneCaller::OneCaller(std::mutex &in_use, const char *what) : lock(in_use, std::try_to_lock)
{
  if (!lock.owns_lock())
    throw std::runtime_error(std::string("this ") + what +
                             " is in use by another thread, or was when this process was forked; "
                             "make one for each thread");
}

}    // namespace pwmlff
