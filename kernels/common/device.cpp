// SPDX-License-Identifier: GPL-2.0-or-later

#include "device.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace pwmlff {
namespace {

class HostDevice : public Device {
 public:
  HostDevice(Mode mode, const std::string &name) : Device(mode, name) {}

  void *allocate(Place, std::size_t bytes) override
  {
    static constexpr std::size_t alignment = 64;
    void *memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0xff, bytes);    // NaN and -1: on a GPU nothing is zero by itself either
    return memory;
  }
  void release(Place, void *memory) noexcept override { std::free(memory); }
  void upload(void *target, const void *source, std::size_t bytes) override
  {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void download(void *target, const void *source, std::size_t bytes) override
  {
    upload(target, source, bytes);
  }
  void clear(void *memory, std::size_t bytes) override
  {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  void synchronize() override {}
  std::size_t largest_scratch() const override { return 227 * 1024; }    // that of an H200
  int multiprocessors() const override { return 2; }

 private:
  void launch(const std::function<void(void *, const char **)> &) override {}    // of GPUs

  void mark_begin(const char *kernel) override
  {
    measured = kernel;
    begin = std::chrono::steady_clock::now();
  }
  void mark_end() override
  {
    seconds_[measured] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  std::string measured;
  std::chrono::steady_clock::time_point begin;
};

}    // namespace

#ifndef PWMLFF_HAVE_CUDA
std::shared_ptr<Device> make_cuda_device(int)
{
  throw std::runtime_error(
      "this build of pair-pwmlff has no CUDA kernels: reinstall it where nvcc is "
      "on the PATH, or with -DPWMLFF_CUDA=ON to see what is missing");
}
#endif

std::shared_ptr<Device> Device::make(const std::string &name)
{
  if (name == "cpu") return std::make_shared<HostDevice>(Mode::serial, name);
  if (name == "cpu:lanes") return std::make_shared<HostDevice>(Mode::threads, name);
  static constexpr const char *cuda = "cuda:";
  if (name.rfind(cuda, 0) == 0) {
    int index = -1;
    const char *const end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data() + std::strlen(cuda), end, index);
    if (failure == std::errc() && stop == end && index >= 0) return make_cuda_device(index);
  }
  throw std::invalid_argument("device is '" + name + "'; choose cuda:N, cpu or cpu:lanes");
}

}    // namespace pwmlff
