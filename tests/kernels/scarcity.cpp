/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What the kernels do where memory or threads run out.

#define PWMLFF_ISA test
#define PWMLFF_VECTOR_BYTES 16
#define PWMLFF_REGISTERS 16

#include "common/device.h"
#include "dp/simd.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <iostream>
#include <new>

namespace {
std::atomic<int> threads_left{1000};
}

// In the place of the library's own.
extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*start)(void *), void *argument) noexcept
{
  using Create = int(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (threads_left-- <= 0) return EAGAIN;
  static auto *const create = reinterpret_cast<Create *>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

template <class Kernel>
void pwmlff::launch_teams_cuda(std::int64_t, std::size_t, const Kernel &, void *, const char **)
{
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
  return 0;
}
