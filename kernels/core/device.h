// SPDX-License-Identifier: GPL-2.0-or-later

// Where team kernels run: memory, copies and launches on one CUDA device, or on the CPU in its
// place.
//
// Needs no torch. Work on a CUDA device goes to one stream of its own, in order, and is not waited
// for until synchronize(). Making a device makes it the current one of the thread; every call runs
// with its device current, whatever the thread has done in between.

#pragma once

#include "export.h"
#include "team.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pwmlff {

class PWMLFF_KERNELS_API Device {
 public:
  enum class Mode { serial, threads, cuda, none };
  enum class Place { device, host };

  /// @param name "cuda:N"; "cpu", one lane per team; "cpu:lanes", a thread for each lane of a
  ///             team, which is slow and meant for tests; or "none": kernels and copies do nothing
  ///             and results are zero, which leaves the host's part of a step to be timed
  /// @throws std::invalid_argument, or std::runtime_error where the device cannot be used
  static std::shared_ptr<Device> make(const std::string &name);

  virtual ~Device() = default;
  Mode mode() const { return mode_; }
  const std::string &name() const { return name_; }    // "cuda:0 (NVIDIA H200)"
  int gpu() const { return gpu_; }    // index among the visible GPUs; -1: memory of the host

  /// Memory of the device, or of the host where copies to and from the device are fast.
  virtual void *allocate(Place place, std::size_t bytes) = 0;
  virtual void release(Place place, void *memory) noexcept = 0;

  /// Copies keep the order of launches; host memory has to stay as it is until synchronize().
  virtual void upload(void *target, const void *source, std::size_t bytes) = 0;
  virtual void download(void *target, const void *source, std::size_t bytes) = 0;
  virtual void clear(void *memory, std::size_t bytes) = 0;

  /// Wait for everything. @throws std::runtime_error where a kernel or a copy has failed
  virtual void synchronize() = 0;

  /// Bytes that it has for allocate(), others' included.
  virtual std::size_t memory() const = 0;
  /// Bytes of scratch that a block can have (BlockShape).
  virtual std::size_t largest_scratch() const = 0;
  /// Each runs thread blocks of its own at the same time.
  virtual int multiprocessors() const = 0;

  /// Measure how long each kernel takes from now on, or no longer. What was measured is kept.
  void measure(bool enabled) { measuring = enabled; }
  /// Seconds by name of the kernel, for all launches up to the last synchronize().
  const std::map<std::string, double> &seconds() const { return seconds_; }

  /// Run a team kernel on items 0 .. nitems-1.
  template <class Kernel>
  void run(std::int64_t nitems, const Kernel &kernel, std::size_t scratch = 0)
  {
    if (nitems <= 0) return;
    if (measuring) mark_begin(Kernel::name);
    if (mode_ == Mode::serial || mode_ == Mode::threads) run_on_host(nitems, scratch, kernel);
#ifdef PWMLFF_HAVE_CUDA
    else if (mode_ == Mode::cuda)
      launch([&](void *stream, const char **running) {
        launch_teams_cuda(nitems, scratch, kernel, stream, running);
      });
#endif
    if (measuring) mark_end();
  }

 protected:
  Device(Mode mode, std::string name, int gpu = -1) : mode_(mode), name_(std::move(name)), gpu_(gpu)
  {
  }

  std::map<std::string, double> seconds_;

 private:
  /// Launch a kernel on a stream (cudaStream_t), as launch_teams_cuda, with the device set.
  virtual void launch(const std::function<void(void *stream, const char **running)> &call) = 0;

  /// Before and after a kernel that is to be measured.
  virtual void mark_begin(const char *kernel) = 0;
  virtual void mark_end() = 0;

  template <class Kernel>
  void run_on_host(std::int64_t nitems, std::size_t scratch, const Kernel &kernel)
  {
    run_team(mode_ == Mode::serial ? 1 : Kernel::lanes, scratch, Kernel::name,
             [&](const HostTeam &team) {
               for (std::int64_t item = 0; item < nitems; ++item) {
                 kernel(team, item);
                 team.sync();
               }
             });
  }
  /// Call work on each lane of a team, which is a thread where there are several.
  static void run_team(int lanes, std::size_t scratch, const char *kernel,
                       const std::function<void(const HostTeam &)> &work);

  Mode mode_;
  std::string name_;
  int gpu_;
  bool measuring = false;
};

/// The CUDA device of this index among those that are visible; it becomes the current one.
/// @throws std::runtime_error where there is none, or no CUDA in this build
std::shared_ptr<Device> make_cuda_device(int index);

/// An array that keeps its memory while it is large enough. Elements are plain data.
template <class T, Device::Place place> class GrowingArray {
 public:
  explicit GrowingArray(std::shared_ptr<Device> device) : device(std::move(device)) {}
  GrowingArray(GrowingArray &&) = delete;
  ~GrowingArray() { device->release(place, memory); }

  /// Room for n elements; what was there is lost where it has to grow.
  T *reserve(std::size_t n)
  {
    if (n > capacity) {
      device->release(place, memory);
      memory = nullptr;
      capacity = 0;
      const std::size_t wanted = n + n / 8;
      memory = static_cast<T *>(device->allocate(place, wanted * sizeof(T)));
      capacity = wanted;
    }
    return memory;
  }
  T *get() const { return memory; }

 protected:
  std::shared_ptr<Device> device;

 private:
  T *memory = nullptr;
  std::size_t capacity = 0;
};

/// An array of the host that is copied to or from a device at every step.
template <class T> using HostArray = GrowingArray<T, Device::Place::host>;

/// An array on a device.
template <class T> class DeviceArray : public GrowingArray<T, Device::Place::device> {
 public:
  using GrowingArray<T, Device::Place::device>::GrowingArray;

  void assign(const T *values, std::size_t n)
  {
    this->device->upload(this->reserve(n), values, n * sizeof(T));
  }
  void assign(const std::vector<T> &values) { assign(values.data(), values.size()); }
  void clear(std::size_t n) { this->device->clear(this->reserve(n), n * sizeof(T)); }
  void download(T *target, std::size_t n) const
  {
    this->device->download(target, this->get(), n * sizeof(T));
  }
};

}    // namespace pwmlff
