// SPDX-License-Identifier: GPL-2.0-or-later

// What ops share: launches on the device of a tensor, calls through the dispatcher, checks.

#ifndef PWMLFF_OP_H
#define PWMLFF_OP_H

#include "launch.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace pwmlff {

/// Run a kernel where `like` is; on a GPU on torch's current stream.
template <typename Kernel>
void launch(const at::Tensor &like, std::int64_t nitems, const Kernel &kernel)
{
  if (like.is_cpu()) {
    launch_cpu(nitems, kernel);
    return;
  }
  const c10::OptionalDeviceGuard guard(like.device());
  const c10::impl::VirtualGuardImpl implementation(like.device().type());
  launch_cuda(nitems, kernel, implementation.getStream(like.device()).native_handle());
}

/// The registered op of this name, for calls that autograd sees. Function: the type of its kernel.
template <typename Function> auto find_op(const char *name)
{
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

/// Register the kernels of an op that has been declared.
template <typename Kernel, typename Meta, typename Autograd>
void register_kernels(torch::Library &library, const char *name, Kernel kernel, Meta meta,
                      Autograd autograd)
{
  library.impl(name, torch::dispatch(c10::DispatchKey::CPU, kernel));
  library.impl(name, torch::dispatch(c10::DispatchKey::CUDA, kernel));
  library.impl(name, torch::dispatch(c10::DispatchKey::Meta, meta));
  library.impl(name, torch::dispatch(c10::DispatchKey::Autograd, autograd));
}

/// @throws c10::Error unless the tensor has this shape, where -1 stands for any size; `expected`
/// puts it into words
inline void check_shape(const char *name, const at::Tensor &tensor, c10::IntArrayRef shape,
                        const char *expected)
{
  bool fits = tensor.dim() == static_cast<std::int64_t>(shape.size());
  for (std::size_t k = 0; fits && k < shape.size(); ++k)
    fits = shape[k] < 0 || tensor.sym_size(static_cast<std::int64_t>(k)) == shape[k];
  TORCH_CHECK(fits, name, " has shape ", tensor.sym_sizes(), "; expected ", expected);
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

/// @throws c10::Error unless two tensors share device and type
inline void check_like(const char *name, const at::Tensor &tensor, const char *other_name,
                       const at::Tensor &other)
{
  TORCH_CHECK(tensor.device() == other.device() && tensor.scalar_type() == other.scalar_type(),
              name, " is ", tensor.scalar_type(), " on ", tensor.device(), " and ", other_name, " ",
              other.scalar_type(), " on ", other.device(), "; convert one of them");
}

}    // namespace pwmlff

#endif
