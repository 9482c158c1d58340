// SPDX-License-Identifier: GPL-2.0-or-later

#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

std::atomic<bool> forked = false;

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });

}    // namespace

int usable_threads(int wanted) { return forked ? 1 : wanted; }

void in_shares(int nshares, const std::function<void(int)> &work)
{
  if (nshares == 1) return work(0);
  std::exception_ptr error;    // none may leave the parallel region
#pragma omp parallel for num_threads(usable_threads(nshares)) schedule(static, 1)
  for (int share = 0; share < nshares; ++share) try {
      work(share);
    } catch (...) {
#pragma omp critical(pwmlff_shares_error)
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

void in_parts(std::ptrdiff_t n, int nthreads,
              const std::function<void(std::ptrdiff_t, std::ptrdiff_t)> &work)
{
  constexpr std::ptrdiff_t worth_a_thread = 8192;
  const auto parts = std::clamp<std::ptrdiff_t>(n / worth_a_thread, 1, std::max(1, nthreads));
  const auto nparts = static_cast<int>(parts);
  in_shares(nparts, [&](int part) {
    work(end_of_share(part - 1, nparts, n), end_of_share(part, nparts, n));
  });
}

OneCaller::OneCaller(std::mutex &in_use, const char *what) : lock(in_use, std::try_to_lock)
{
  if (!lock.owns_lock())
    throw std::runtime_error(std::string("this ") + what +
                             " is in use by another thread, or was when this process was forked; "
                             "make one for each thread");
}

}    // namespace pwmlff
