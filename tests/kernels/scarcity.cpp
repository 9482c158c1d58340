// SPDX-License-Identifier: GPL-2.0-or-later

// What the kernels do where memory or threads run out.

#define PWMLFF_ISA test
#define PWMLFF_VECTOR_BYTES 16
#define PWMLFF_REGISTERS 16

#include "core/cpu/simd.h"
#include "core/device.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <new>

namespace {
std::atomic<int> threads_left{1000};
thread_local int allocations_left = 1 << 30;    // each thread has its own: the lanes have enough
}    // namespace

void *operator new(std::size_t size)
{
  void *const memory = allocations_left-- > 0 ? std::malloc(size) : nullptr;
  if (!memory) throw std::bad_alloc();
  return memory;
}

void operator delete(void *memory) noexcept { std::free(memory); }

void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

// In the place of the library's own.
extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*start)(void *), void *argument) noexcept
{
  using Create = int(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (threads_left-- <= 0) return EAGAIN;
  static auto *const create = reinterpret_cast<Create *>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

namespace {

struct Count {
  static constexpr int lanes = 8;
  static constexpr const char *name = "Count";
  int *counts;    // [nitems]
  template <class Team> void operator()(const Team &team, std::int64_t item) const
  {
    team.add(&counts[item], 1);
    team.sync();
  }
};

}    // namespace

int main()
{
  pwmlff::test::Buffer<double> buffer(8);
  try {
    buffer.reserve(std::size_t(1) << 58);
    std::cout << "memory without end\n";
  } catch (const std::bad_alloc &) {
  }
  for (const std::size_t n : {4, 16}) {
    buffer.reserve(n);
    std::cout << "room for " << n << ": " << (buffer.get() && buffer.size() >= n) << "\n";
    buffer.fill(1.0);
  }

  const auto device = pwmlff::Device::make("cpu:lanes");
  int counts[3] = {};
  for (const int some : {3, 1000}) {
    threads_left = some;
    try {
      device->run(3, Count{counts});
      std::cout << "counted " << counts[0] << counts[1] << counts[2] << "\n";
    } catch (const std::exception &error) {
      std::cout << "error: " << error.what() << "\n";
    }
  }

  // Memory runs out at the first allocation, at the second, ...: each time that is an error, until
  // there is enough.
  for (int allocations = 0;; ++allocations) {
    counts[0] = counts[1] = counts[2] = 0;
    bool done = true;
    allocations_left = allocations;
    try {
      device->run(3, Count{counts});
    } catch (const std::bad_alloc &) {
      done = false;
    }
    allocations_left = 1 << 30;
    if (!done) continue;
    std::cout << "enough memory: " << (allocations > Count::lanes) << ", counted " << counts[0]
              << counts[1] << counts[2] << "\n";
    return 0;
  }
}
