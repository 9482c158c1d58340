// SPDX-License-Identifier: GPL-2.0-or-later

// Threads of OpenMP in processes that fork, and objects that one thread may use at a time.

#pragma once

#include "export.h"

#include <cstddef>
#include <functional>
#include <mutex>

namespace pwmlff {

/// How many threads may share work that was cut for so many: one alone in a process that was
/// forked, for the threads of OpenMP stay behind in its parent, and would be waited for for ever.
PWMLFF_KERNELS_API int usable_threads(int wanted);

/// Call work(share) for share = 0 .. nshares-1, each on a thread of its own where there are so
/// many. Shares, not threads, decide who does what: fewer threads change nothing.
/// @throws what the first of the calls to fail has thrown, once all have ended
PWMLFF_KERNELS_API void in_shares(int nshares, const std::function<void(int)> &work);

/// The end of a share of n items; where share -1 ends, share 0 begins.
inline std::ptrdiff_t end_of_share(int share, int nshares, std::ptrdiff_t n)
{
  return (share + 1) * n / nshares;
}

/// Call work(begin, end) for parts of 0 .. n-1 on so many threads, or on fewer where items are too
/// few to be worth it: about a nanosecond for each is taken for granted.
/// @throws likewise
PWMLFF_KERNELS_API void in_parts(std::ptrdiff_t n, int nthreads,
                                 const std::function<void(std::ptrdiff_t, std::ptrdiff_t)> &work);

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
