// SPDX-License-Identifier: GPL-2.0-or-later

// Matrices in memory of the kernels of training, products of them, and threads over what is apart.

#ifndef PWMLFF_TRAINING_ARRAYS_H
#define PWMLFF_TRAINING_ARRAYS_H

#include "common/threads.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstdint>
#include <exception>

namespace pwmlff {

/// A matrix in memory that is owned elsewhere, element (i, j) at data[i*rows + j*columns].
template <class T>
at::Tensor matrix(const T *data, std::int64_t n, std::int64_t m, std::int64_t rows,
                  std::int64_t columns = 1)
{
  return at::from_blob(const_cast<T *>(data), {n, m}, {rows, columns},
                       at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

/// out = a b, or out += a b
inline void multiply(at::Tensor out, const at::Tensor &a, const at::Tensor &b, bool add = false)
{
  if (add) at::addmm_out(out, out, a, b);
  else at::mm_out(out, a, b);
}

/// Numbers at an address that is aligned for the widest vectors.
template <class T> class Array {
 public:
  void resize(std::int64_t n)
  {
    if (n <= size) return;
    tensor = at::empty({n}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
    size = n;
  }
  T *get() { return size ? tensor.template data_ptr<T>() : nullptr; }

 private:
  at::Tensor tensor;
  std::int64_t size = 0;
};

/// One thread of torch's while this lives: sums of a product must not depend on their number.
class OneThread {
 public:
  OneThread() : before(at::get_num_threads())
  {
    if (before != 1) at::set_num_threads(1);
  }
  ~OneThread()
  {
    if (before != 1) at::set_num_threads(before);
  }
  OneThread(const OneThread &) = delete;
  OneThread &operator=(const OneThread &) = delete;

 private:
  int before;
};

/// Run work(k) for k < n on threads; the first error is thrown.
template <class Work> void parallel_for(std::size_t n, int nthreads, const Work &work)
{
  const OneThread one;
  std::exception_ptr error;
#pragma omp parallel for num_threads(usable_threads(nthreads)) \
    schedule(dynamic, 1) if (nthreads > 1)
  for (std::ptrdiff_t k = 0; k < static_cast<std::ptrdiff_t>(n); ++k) try {
      const at::AutoDispatchBelowADInplaceOrView guard;
      work(static_cast<std::size_t>(k));
    } catch (...) {
#pragma omp critical(pwmlff_training_error)
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

}    // namespace pwmlff

#endif
