// SPDX-License-Identifier: GPL-2.0-or-later

#include "device.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

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
    // NaN and -1: on a GPU nothing is zero by itself either.
    std::memset(memory, mode() == Mode::none ? 0 : 0xff, bytes);
    return memory;
  }
  void release(Place, void *memory) noexcept override { std::free(memory); }
  void upload(void *target, const void *source, std::size_t bytes) override
  {
    if (bytes > 0 && mode() != Mode::none) std::memcpy(target, source, bytes);
  }
  void download(void *target, const void *source, std::size_t bytes) override
  {
    upload(target, source, bytes);
  }
  void clear(void *memory, std::size_t bytes) override
  {
    if (bytes > 0 && mode() != Mode::none) std::memset(memory, 0, bytes);
  }
  void synchronize() override {}
  std::size_t memory() const override { return std::size_t{8} << 30; }
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

void Device::run_team(int lanes, std::size_t scratch, const char *kernel,
                      const std::function<void(const HostTeam &)> &work)
{
  // As on a GPU nothing is zero by itself.
  std::vector<double> memory(scratch / sizeof(double) + 1,
                             std::numeric_limits<double>::quiet_NaN());
  if (lanes == 1) return work(HostTeam(memory.data()));
  HostTeam::Common common(lanes);
  // Lanes wait for each other, so none begins before all are there.
  std::promise<bool> all_there;
  const std::shared_future<bool> begin = all_there.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (int lane = 0; lane < lanes; ++lane)
      threads.emplace_back([&, begin, lane] {
        if (begin.get()) work(HostTeam(lane, lanes, common, memory.data()));
      });
  } catch (const std::system_error &error) {
    all_there.set_value(false);
    throw std::runtime_error("cannot start " + std::to_string(lanes) + " threads for kernel " +
                             kernel + ": " + error.what() +
                             "; raise the limit of processes (ulimit -u)");
  } catch (...) {
    all_there.set_value(false);    // or those that are there would be waited for
    throw;
  }
  all_there.set_value(true);
}

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
  if (name == "none") return std::make_shared<HostDevice>(Mode::none, "nothing, forces are zero");
  if (name == "cpu:lanes") return std::make_shared<HostDevice>(Mode::threads, name);
  static constexpr const char *cuda = "cuda:";
  if (name.rfind(cuda, 0) == 0) {
    int index = -1;
    const char *const end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data() + std::strlen(cuda), end, index);
    if (failure == std::errc() && stop == end && index >= 0) return make_cuda_device(index);
  }
  throw std::invalid_argument("device is '" + name + "'; choose cuda:N, cpu, cpu:lanes or none");
}

}    // namespace pwmlff
