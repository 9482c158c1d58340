// SPDX-License-Identifier: GPL-2.0-or-later

// Matrices in memory of the kernels of training, products of them, and threads over what is apart.

#pragma once

#include "../core/buffer.h"
#include "../core/threads.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// A matrix [n, m] in memory that is owned elsewhere, element (i, j) at data[i*rows + j*columns].
template <class T> struct Matrix {
  Matrix t() const { return {data, m, n, columns, rows}; }

  T *data;
  std::int64_t n, m, rows, columns;
};

template <class T>
Matrix<T> matrix(const T *data, std::int64_t n, std::int64_t m, std::int64_t rows)
{
  return {const_cast<T *>(data), n, m, rows, 1};
}

/// Products of matrices, by the linear algebra library of the caller.
template <class T> struct Product {
  /// out = a b, or out += a b where add
  void (*multiply)(const Matrix<T> &out, const Matrix<T> &a, const Matrix<T> &b, bool add);

  void operator()(const Matrix<T> &out, const Matrix<T> &a, const Matrix<T> &b,
                  bool add = false) const
  {
    multiply(out, a, b, add);
  }
};

/// Run work(k) for k < n on threads, each of which takes the next k when it is free; the first
/// error is thrown.
template <class Work> void parallel_for(std::size_t n, int nthreads, const Work &work)
{
  std::atomic<std::size_t> next = 0;
  in_shares(nthreads, [&](int) {
    for (std::size_t k; (k = next++) < n;) work(k);
  });
}

}    // namespace pwmlff
