// SPDX-License-Identifier: GPL-2.0-or-later

#include "device_mapping.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace pwmlff {
namespace {

std::string number_of_gpus(int nvisible)
{
  if (nvisible == 0) return "no GPU is visible";
  if (nvisible == 1) return "1 GPU is visible, number 0";
  return std::to_string(nvisible) + " GPUs are visible, numbers 0 to " +
         std::to_string(nvisible - 1);
}

}    // namespace

DevicePolicy parse_device_policy(const std::string &text)
{
  using Mode = DevicePolicy::Mode;
  if (text == "auto") return {Mode::automatic, {}};
  if (text == "cpu") return {Mode::cpu, {}};
  if (text == "gpu") return {Mode::gpu, {}};

  DevicePolicy policy{Mode::list, {}};
  const char *begin = text.data();
  const char *const end = begin + text.size();
  for (;;) {
    int gpu = -1;
    const auto [next, error] = std::from_chars(begin, end, gpu);
    if (error != std::errc() || gpu < 0 || (next != end && *next != ','))
      throw std::invalid_argument("device is '" + text +
                                  "', expected auto, cpu, gpu or numbers of GPUs like 0,1");
    policy.gpus.push_back(gpu);
    if (next == end) return policy;
    begin = next + 1;
  }
}

int device_of_rank(int local_rank, int local_size, int nvisible, const DevicePolicy &policy)
{
  if (local_rank < 0 || local_rank >= local_size)
    throw std::invalid_argument("local rank is " + std::to_string(local_rank) +
                                ", expected 0 or more and less than the " +
                                std::to_string(local_size) + " ranks of the node");
  if (nvisible < 0)
    throw std::invalid_argument("number of GPUs is " + std::to_string(nvisible) +
                                ", expected 0 or more");
  switch (policy.mode) {
    case DevicePolicy::Mode::cpu:
      return CPU;
    case DevicePolicy::Mode::automatic:
      return nvisible == 0 ? CPU : local_rank % nvisible;
    case DevicePolicy::Mode::gpu:
      if (nvisible == 0)
        throw std::invalid_argument("device is gpu, but no GPU is visible; use device auto or cpu");
      return local_rank % nvisible;
    case DevicePolicy::Mode::list:
      break;
  }
  const int largest = *std::max_element(policy.gpus.begin(), policy.gpus.end());
  if (largest >= nvisible)
    throw std::invalid_argument("device names GPU " + std::to_string(largest) + ", but " +
                                number_of_gpus(nvisible) +
                                "; numbers count the GPUs that CUDA_VISIBLE_DEVICES leaves");
  return policy.gpus[local_rank % policy.gpus.size()];
}

}    // namespace pwmlff

int pwmlff_device_of_rank(int local_rank, int local_size, int nvisible, const char *policy,
                          char *message, int size)
try {
  return pwmlff::device_of_rank(local_rank, local_size, nvisible,
                                pwmlff::parse_device_policy(policy));
} catch (const std::exception &error) {
  std::snprintf(message, size, "%s", error.what());
  return -2;
}
