// SPDX-License-Identifier: GPL-2.0-or-later

#include "device.h"

#include <cuda.h>    // types alone; the driver is asked through the runtime
#include <cuda_runtime.h>

#include <stdexcept>

namespace pwmlff {
namespace {

// Whether this process uses a device. Making a device the current one makes a context on it, which
// takes hundreds of MiB, so the guard below does not go back to one that is not used.
bool is_in_use(int index)
{
  using GetState = CUresult (*)(CUdevice, unsigned *, int *);
  static const auto get_state = [] {
    void *found = nullptr;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 7000, cudaEnableDefault);
#else
    cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &found, cudaEnableDefault);
#endif
    return reinterpret_cast<GetState>(found);
  }();
  unsigned flags = 0;
  int active = 0;
  return get_state && get_state(index, &flags, &active) == CUDA_SUCCESS && active;
}

std::string size_text(std::size_t bytes)
{
  constexpr std::size_t KIB = 1024, MIB = KIB * KIB;
  if (bytes < KIB) return std::to_string(bytes) + " bytes";
  return bytes < MIB ? std::to_string(bytes / KIB) + " KiB" : std::to_string(bytes / MIB) + " MiB";
}

/// Makes a device the current one as long as it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index)
  {
    cudaGetDevice(&before);
    if (before != index) cudaSetDevice(index);
  }
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;
  ~DeviceGuard()
  {
    int now = -1;
    if (cudaGetDevice(&now) == cudaSuccess && now != before && is_in_use(before))
      cudaSetDevice(before);
  }

 private:
  int before = 0;
};

class CudaDevice : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp &properties) :
      Device(Mode::cuda, "cuda:" + std::to_string(index) + " (" + properties.name + ")", index),
      whole(properties.totalGlobalMem),
      largest(properties.sharedMemPerBlockOptin),
      nprocessors(properties.multiProcessorCount)
  {
    const DeviceGuard guard(index);
    check(cudaHostAlloc(&running, sizeof *running, cudaHostAllocMapped), "taking pinned memory");
    *running = nullptr;
    const cudaError_t refused = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (refused != cudaSuccess) cudaFreeHost(running);
    check(refused, "making a stream");
  }
  ~CudaDevice() override
  {
    const DeviceGuard guard(gpu());
    forget_marks();
    cudaFreeHost(running);
    cudaStreamDestroy(stream);
  }

  void *allocate(Place place, std::size_t bytes) override
  {
    const DeviceGuard guard(gpu());
    const bool on_device = place == Place::device;
    void *memory = nullptr;
    check(on_device ? cudaMalloc(&memory, bytes) : cudaMallocHost(&memory, bytes),
          "taking " + size_text(bytes) + " of " + (on_device ? "its memory" : "pinned memory"));
    return memory;
  }
  void release(Place place, void *memory) noexcept override
  {
    if (!memory) return;
    const DeviceGuard guard(gpu());
    if (place == Place::device) cudaFree(memory);
    else cudaFreeHost(memory);
  }
  void upload(void *target, const void *source, std::size_t bytes) override
  {
    copy(target, source, bytes, cudaMemcpyHostToDevice, "copying to it");
  }
  void download(void *target, const void *source, std::size_t bytes) override
  {
    copy(target, source, bytes, cudaMemcpyDeviceToHost, "copying from it");
  }
  void clear(void *memory, std::size_t bytes) override
  {
    if (bytes == 0) return;
    const DeviceGuard guard(gpu());
    check(cudaMemsetAsync(memory, 0, bytes, stream), "clearing memory");
  }
  void synchronize() override
  {
    const DeviceGuard guard(gpu());
    const cudaError_t status = cudaStreamSynchronize(stream);
    if (status != cudaSuccess) {
      forget_marks();
      // Kernels run one after the other, so the last one that began is the one that failed.
      const char *const name = *running;
      check(status, name ? std::string("kernel ") + name : "a copy");
    }
    for (const auto &[kernel, begin, end] : marks) {
      float milliseconds = 0.0F;
      if (!end) continue;    // it did not start
      check(cudaEventElapsedTime(&milliseconds, begin, end), "measuring a kernel");
      seconds_[kernel] += 1e-3 * milliseconds;
    }
    forget_marks();
  }
  std::size_t memory() const override { return whole; }
  std::size_t largest_scratch() const override { return largest; }
  int multiprocessors() const override { return nprocessors; }

 private:
  void launch(const std::function<void(void *, const char **)> &call) override
  {
    const DeviceGuard guard(gpu());
    try {
      call(stream, running);
    } catch (const std::runtime_error &error) {
      throw std::runtime_error(name() + ": " + error.what() + after_kernel());
    }
  }

  // A call may be told that a kernel before it has failed.
  std::string after_kernel() const
  {
    const char *const last = *running;
    return last ? std::string(" (the last kernel to begin was ") + last + ")" : "";
  }

  void mark_begin(const char *kernel) override
  {
    const DeviceGuard guard(gpu());
    marks.push_back({kernel, record(), nullptr});
  }
  void mark_end() override
  {
    const DeviceGuard guard(gpu());
    marks.back().end = record();
  }
  cudaEvent_t record()
  {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "making an event");
    check(cudaEventRecord(event, stream), "recording an event");
    return event;
  }

  void copy(void *target, const void *source, std::size_t bytes, cudaMemcpyKind direction,
            const char *what)
  {
    if (bytes == 0) return;
    const DeviceGuard guard(gpu());
    const cudaError_t status = cudaMemcpyAsync(target, source, bytes, direction, stream);
    if (status != cudaSuccess) check(status, what + after_kernel());
  }

  void forget_marks()
  {
    for (const auto &[kernel, begin, end] : marks) {
      cudaEventDestroy(begin);
      if (end) cudaEventDestroy(end);
    }
    marks.clear();
  }

  void check(cudaError_t status, const std::string &what) const
  {
    if (status == cudaSuccess) return;
    cudaGetLastError();    // said once
    throw std::runtime_error(name() + ": " + what + " failed: " + cudaGetErrorString(status));
  }

  std::size_t whole, largest;
  int nprocessors;
  cudaStream_t stream = nullptr;
  const char **running = nullptr;    // name of the kernel that began last; the GPU writes it

  struct Mark {
    const char *kernel;
    cudaEvent_t begin, end;
  };
  std::vector<Mark> marks;
};

}    // namespace

std::shared_ptr<Device> make_cuda_device(int index)
{
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("there is no CUDA device: ") + cudaGetErrorString(status));
  if (index >= count)
    throw std::runtime_error("there is no cuda:" + std::to_string(index) + ", only " +
                             std::to_string(count) + " CUDA device(s) are visible");
  const auto require = [index](cudaError_t answer) {
    if (answer != cudaSuccess)
      throw std::runtime_error("cuda:" + std::to_string(index) +
                               " cannot be used: " + cudaGetErrorString(answer));
  };
  // Setting a device makes a context on it, so this comes before all else, and the guards of this
  // thread find nothing to change: no other device ever gets one.
  require(cudaSetDevice(index));
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, index));
  return std::make_shared<CudaDevice>(index, properties);
}

}    // namespace pwmlff
