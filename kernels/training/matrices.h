// SPDX-License-Identifier: GPL-2.0-or-later

// Matrices in memory of the kernels of training, products of them, and threads over what is apart.

#pragma once

#include "../core/buffer.h"
#include "../core/threads.h"

#include <cstddef>
#include <cstdint>
#include <exception>

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

/// Run work(k) for k < n on threads; the first error is thrown.
template <class Work>
void parallel_for(std::size_t n, [[maybe_unused]] int nthreads, const Work &work)
{
  std::exception_ptr error;
#pragma omp parallel for num_threads(usable_threads(nthreads)) \
    schedule(dynamic, 1) if (nthreads > 1)
  for (std::ptrdiff_t k = 0; k < static_cast<std::ptrdiff_t>(n); ++k) try {
      work(static_cast<std::size_t>(k));
    } catch (...) {
#pragma omp critical(pwmlff_training_error)
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

}    // namespace pwmlff
