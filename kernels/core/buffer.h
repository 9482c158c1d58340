// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include <cstddef>
#include <new>

// Code for an instruction set has one of its own: its functions must not serve other code.
#ifdef PWMLFF_ISA
namespace pwmlff::PWMLFF_ISA {
#else
namespace pwmlff {
#endif

/// Memory for plain numbers, aligned to cache lines; grows, never shrinks, and does not keep its
/// contents when it grows.
template <class T> class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t n) { reserve(n); }
  Buffer(Buffer &&other) noexcept { swap(other); }
  Buffer &operator=(Buffer &&other) noexcept
  {
    swap(other);
    return *this;
  }
  ~Buffer() { release(); }

  void reserve(std::size_t wanted)
  {
    if (wanted <= n) return;
    const std::size_t larger = n == 0 ? wanted : wanted + wanted / 8;
    release();
    p = static_cast<T *>(::operator new(larger * sizeof(T), alignment));
#ifdef __SANITIZE_ADDRESS__
    __builtin_memset(static_cast<void *>(p), 0xff, larger * sizeof(T));    // no numbers
#endif
    n = larger;    // only now: there may be no memory
  }
  void fill(T value)
  {
    for (std::size_t i = 0; i < n; ++i) p[i] = value;
  }
  T *get() { return p; }
  const T *get() const { return p; }
  // Within what was reserved. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
  T &operator[](std::size_t i) { return p[i]; }
  const T &operator[](std::size_t i) const { return p[i]; }
  std::size_t size() const { return n; }

  void swap(Buffer &other) noexcept
  {
    T *const other_p = other.p;
    const std::size_t other_n = other.n;
    other.p = p;
    other.n = n;
    p = other_p;
    n = other_n;
  }

 private:
  static constexpr std::align_val_t alignment{64};
  void release()
  {
    if (p) ::operator delete(static_cast<void *>(p), alignment);
    p = nullptr;
    n = 0;
  }

  T *p = nullptr;
  std::size_t n = 0;
};

}    // namespace
