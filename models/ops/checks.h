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

/// A list of neighbors: those of a center and a species of neighbors are candidate[first[k]] up to
/// candidate[first[k + 1]], k = center*nspecies + species.
/// @return the number of centers
inline std::int64_t check_list(const at::Tensor &first, const at::Tensor &candidate,
                               std::int64_t nrows, std::int64_t nspecies)
{
  check_array("first", first, at::kInt, {first.numel()});
  check_array("candidate", candidate, at::kInt, {candidate.numel()});
  const std::int64_t ncenters = (first.numel() - 1) / nspecies;
  TORCH_CHECK_VALUE(first.numel() >= 1 && first.numel() == ncenters * nspecies + 1 &&
                        ncenters <= nrows,
                    "first has ", first.numel(), " entries, expected ncenters*", nspecies,
                    " + 1 with at most ", nrows, " centers");
  const int *const f = first.const_data_ptr<int>();
  bool ascending = f[0] == 0;
  for (std::int64_t k = 1; k < first.numel(); ++k) ascending &= f[k - 1] <= f[k];
  TORCH_CHECK_VALUE(ascending && f[first.numel() - 1] <= candidate.numel(),
                    "first has to rise from 0 to at most the number of candidates, ",
                    candidate.numel());
  const int *const c = candidate.const_data_ptr<int>();
  for (std::int64_t k = 0; k < candidate.numel(); ++k)
    TORCH_CHECK_VALUE(c[k] >= 0 && c[k] < nrows, "candidate ", k, " is row ", c[k],
                      ", expected 0 to ", nrows - 1);
  return ncenters;
}

}    // namespace pwmlff::models
