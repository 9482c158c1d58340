// SPDX-License-Identifier: GPL-2.0-or-later

#include "inventory.h"

#include <cstdio>

namespace {

constexpr const char *REASON = "this build of pair-pwmlff has no GPU kernels (" PWMLFF_NO_CUDA ")";

int refuse(char *message, int size)
{
  std::snprintf(message, size, "%s", REASON);
  return -1;
}

}    // namespace

int pwmlff_gpus(pwmlff_gpu *, int, pwmlff_cuda *cuda)
{
  *cuda = {};
  std::snprintf(cuda->reason, sizeof cuda->reason, "%s", REASON);
  return 0;
}

int pwmlff_gpu_memory(int, uint64_t *, uint64_t *, char *message, int size)
{
  return refuse(message, size);
}

int pwmlff_use_gpu(int, char *message, int size) { return refuse(message, size); }
