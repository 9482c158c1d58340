// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include <ATen/Parallel.h>

namespace pwmlff::models {

/// One thread of torch's while this lives: sums must not depend on their number.
class OneThread {
 public:
  OneThread() : before(at::get_num_threads())
  {
    if (before != 1) at::set_num_threads(1);
  }
  ~OneThread()
  {
    if (before != 1) at::set_num_threads(before);
  }
  OneThread(const OneThread &) = delete;
  OneThread &operator=(const OneThread &) = delete;

 private:
  int before;
};

}    // namespace pwmlff::models
