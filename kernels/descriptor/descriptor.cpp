/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "descriptor.h"

#include "../common/op.h"

namespace pwmlff {
namespace {

// x weight + bias for x [rows, in].
at::Tensor affine(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &bias,
                  std::size_t layer)
{
  TORCH_CHECK(weight.dim() == 2 && weight.sym_size(0) == x.sym_size(1), "weight[", layer,
              "] has shape ", weight.sym_sizes(), "; expected [", x.sym_size(1), ", width]");
  TORCH_CHECK(bias.dim() >= 1 && bias.dim() <= 2 && bias.sym_numel() == weight.sym_size(1), "bias[",
              layer, "] has shape ", bias.sym_sizes(), "; expected [", weight.sym_size(1), "]");
  return at::addmm(bias.reshape_symint({1, weight.sym_size(1)}), x, weight);
}

void check_layers(at::TensorList weight, at::TensorList bias)
{
  TORCH_CHECK(!weight.empty() && weight.size() == bias.size(), "weight has ", weight.size(),
              " layers and bias ", bias.size(), "; expected one of each per layer, and a layer");
}

}    // namespace

at::Tensor dp_descriptor(const at::Tensor &moments, std::int64_t m2)
{
  check_shape("moments", moments, {-1, 4, -1}, "[number of centers, 4, channels]");
  TORCH_CHECK(m2 >= 1 && m2 <= moments.sym_size(2), "m2 is ", m2, "; expected 1 to ",
              moments.sym_size(2), ", the number of channels");
  return at::matmul(moments.transpose(1, 2), moments.narrow(2, 0, m2)).flatten(1);
}

at::Tensor dp_fitting(const at::Tensor &x, at::TensorList weight, at::TensorList bias,
                      at::TensorList resnet_dt)
{
  check_shape("x", x, {-1, -1}, "[number of centers, width]");
  check_layers(weight, bias);
  const std::size_t last = weight.size() - 1;
  TORCH_CHECK(resnet_dt.size() == last, "resnet_dt has ", resnet_dt.size(), " tensors; expected ",
              last, ", one per layer but the last (without elements where there is none)");
  at::Tensor y = x;
  for (std::size_t k = 0; k < last; ++k) {
    const at::Tensor step = at::tanh(affine(y, weight[k], bias[k], k));
    const at::Tensor &dt = resnet_dt[k];
    if (dt.sym_numel() == 0) {
      y = step;
      continue;
    }
    TORCH_CHECK(dt.dim() >= 1 && dt.dim() <= 2 && dt.sym_numel() == step.sym_size(1), "resnet_dt[",
                k, "] has shape ", dt.sym_sizes(), "; expected [", step.sym_size(1), "]");
    TORCH_CHECK(y.sym_size(1) == step.sym_size(1), "layer ", k, " goes from width ", y.sym_size(1),
                " to ", step.sym_size(1), "; resnet_dt[", k, "] needs the same width");
    y = y + dt.reshape_symint({1, step.sym_size(1)}) * step;
  }
  TORCH_CHECK(weight[last].dim() == 2 && weight[last].sym_size(1) == 1, "weight[", last,
              "] has shape ", weight[last].sym_sizes(), "; expected width 1 of the last layer");
  return affine(y, weight[last], bias[last], last).squeeze(1);
}

at::Tensor dp_embedding(const at::Tensor &x, at::TensorList weight, at::TensorList bias)
{
  check_shape("x", x, {-1}, "[number of edges]");
  check_layers(weight, bias);
  at::Tensor y = x.unsqueeze(1);
  for (std::size_t k = 0; k < weight.size(); ++k) {
    const at::Tensor step = at::tanh(affine(y, weight[k], bias[k], k));
    if (step.sym_size(1) == y.sym_size(1)) y = y + step;
    else if (step.sym_size(1) == y.sym_size(1) * 2) y = at::cat({y, y}, 1) + step;
    else y = step;
  }
  return y;
}

void register_descriptor_ops(torch::Library &library)
{
  register_environment_ops(library);
  register_table_ops(library);
  register_moments_ops(library);
  library.def("dp_descriptor(Tensor moments, int m2) -> Tensor", TORCH_FN(dp_descriptor));
  library.def("dp_fitting(Tensor x, Tensor[] weight, Tensor[] bias, Tensor[] resnet_dt) -> Tensor",
              TORCH_FN(dp_fitting));
  library.def("dp_embedding(Tensor x, Tensor[] weight, Tensor[] bias) -> Tensor",
              TORCH_FN(dp_embedding));
}

}    // namespace pwmlff
