// SPDX-License-Identifier: GPL-2.0-or-later

#include "device.h"

#include <stdexcept>

namespace pwmlff {

std::shared_ptr<Device> make_cuda_device(int)
{
  throw std::runtime_error(
      "this build of pair-pwmlff has no CUDA kernels: reinstall it where nvcc is "
      "on the PATH, or with -DPWMLFF_CUDA=ON to see what is missing");
}

}    // namespace pwmlff
