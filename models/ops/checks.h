// SPDX-License-Identifier: GPL-2.0-or-later

// What the classes for Python share: tensors in, tensors out.

#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace pwmlff::models {

/// A copy as a float64 tensor.
inline at::Tensor tensor(const double *values, at::IntArrayRef shape)
{
  at::Tensor result = at::empty(shape, at::kDouble);
  std::copy_n(values, result.numel(), result.data_ptr<double>());
  return result;
}

/// What a class takes from Python: memory that it reads as it is.
/// @throws c10::ValueError unless the tensor is contiguous, on the CPU, of this type and shape
inline void check_array(const char *name, const at::Tensor &tensor, c10::ScalarType type,
                        c10::IntArrayRef shape)
{
  TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.scalar_type() == type &&
                        tensor.is_contiguous() && tensor.sizes() == shape,
                    name, " is ", tensor.toString(), " ", tensor.sizes(),
                    ", expected a contiguous ", c10::toString(type), " tensor ", shape,
                    " on the CPU");
}

}    // namespace pwmlff::models
