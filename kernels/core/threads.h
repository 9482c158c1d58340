// SPDX-License-Identifier: GPL-2.0-or-later

// Threads of OpenMP in processes that fork, and objects that one thread may use at a time.

#pragma once

#include "export.h"

#include <mutex>

namespace pwmlff {

/// How many threads may share work that was cut for so many: one alone in a process that was
/// forked, for the threads of OpenMP stay behind in its parent, and would be waited for for ever.
PWMLFF_KERNELS_API int usable_threads(int wanted);

/// The right to use an object, taken at once or refused: its state is that of one call.
class PWMLFF_KERNELS_API OneCaller {
 public:
  /// @param what  the object, for the message
  /// @throws std::runtime_error where another thread is using it
  OneCaller(std::mutex &in_use, const char *what);

 private:
  std::unique_lock<std::mutex> lock;
};

}    // namespace pwmlff
