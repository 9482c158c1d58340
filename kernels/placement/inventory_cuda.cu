// SPDX-License-Identifier: GPL-2.0-or-later

#include "inventory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace {

constexpr int ARCHITECTURES[] = {__CUDA_ARCH_LIST__};    // like 800, 900, in rising order

std::string version(int number)
{
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string why_none(cudaError_t status, const pwmlff_cuda &cuda)
{
  if (cuda.driver_version == 0) return "no NVIDIA driver on this machine";
  if (status == cudaErrorInsufficientDriver)
    return "the NVIDIA driver is too old: it runs CUDA " + version(cuda.driver_version) +
           ", and this build has CUDA " + version(cuda.runtime_version);
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)";
  return std::string("CUDA cannot list the GPUs: ") + cudaGetErrorString(status);
}

int report(cudaError_t status, const char *what, int gpu, char *message, int size)
{
  if (status == cudaSuccess) return 0;
  cudaGetLastError();    // else the next launch would report it again
  std::snprintf(message, size, "cannot %s GPU %d: %s", what, gpu, cudaGetErrorString(status));
  return -1;
}

}    // namespace

int pwmlff_gpus(pwmlff_gpu *gpus, int capacity, pwmlff_cuda *cuda)
{
  *cuda = {};
  cudaDriverGetVersion(&cuda->driver_version);
  cudaRuntimeGetVersion(&cuda->runtime_version);
  cuda->oldest_supported =
      *std::min_element(std::begin(ARCHITECTURES), std::end(ARCHITECTURES)) / 10;

  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) count = 0;
  for (int k = 0; k < std::min(count, capacity); ++k) {
    cudaDeviceProp found{};
    status = cudaGetDeviceProperties(&found, k);
    if (status == cudaSuccess)
      status = cudaDeviceGetPCIBusId(gpus[k].pci_bus_id, sizeof gpus[k].pci_bus_id, k);
    if (status != cudaSuccess) {
      count = 0;
      break;
    }
    std::snprintf(gpus[k].name, sizeof gpus[k].name, "%s", found.name);
    char *text = gpus[k].uuid;
    text += std::snprintf(text, 5, "GPU-");
    for (int byte = 0; byte < 16; ++byte)
      text += std::snprintf(text, 4,
                            byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-%02x" : "%02x",
                            static_cast<unsigned char>(found.uuid.bytes[byte]));
    gpus[k].total_memory = found.totalGlobalMem;
    gpus[k].major = found.major;
    gpus[k].minor = found.minor;
    gpus[k].supported = 10 * found.major + found.minor >= cuda->oldest_supported;
  }
  if (count == 0)
    std::snprintf(cuda->reason, sizeof cuda->reason, "%s", why_none(status, *cuda).c_str());
  cudaGetLastError();
  return count;
}

int pwmlff_gpu_memory(int gpu, uint64_t *free_bytes, uint64_t *total_bytes, char *message, int size)
{
  std::size_t free_size = 0, total_size = 0;
  cudaError_t status = cudaSetDevice(gpu);
  if (status == cudaSuccess) status = cudaMemGetInfo(&free_size, &total_size);
  *free_bytes = free_size;
  *total_bytes = total_size;
  return report(status, "read the memory of", gpu, message, size);
}

int pwmlff_use_gpu(int gpu, char *message, int size)
{
  return report(cudaSetDevice(gpu), "use", gpu, message, size);
}
