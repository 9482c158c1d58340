// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge_sums.h"

#include "../one_thread.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace pwmlff::models {
namespace {

void check_vectors(const at::Tensor &edge_vec, const at::Tensor &edge_grad)
{
  TORCH_CHECK(edge_grad.dim() == 2 && edge_grad.size(1) == 3 &&
                  edge_vec.sizes() == edge_grad.sizes(),
              "edge_vec has shape ", edge_vec.sizes(), " and edge_grad ", edge_grad.sizes(),
              "; expected both [number of edges, 3]");
}

/// For edge e from i to j: out[i] += center values[e], out[j] += neighbor values[e].
at::Tensor scatter(const at::Tensor &values, const at::Tensor &edge_index, std::int64_t nall,
                   double center, double neighbor)
{
  TORCH_CHECK(edge_index.dim() == 2 && edge_index.size(0) == 2 &&
                  edge_index.size(1) == values.size(0) && edge_index.scalar_type() == at::kLong,
              "edge_index has shape ", edge_index.sizes(), " and type ", edge_index.scalar_type(),
              "; expected int64 [2, ", values.size(0), "]");
  const at::Tensor ends = edge_index.unsqueeze(2).expand({2, -1, values.size(1)});
  at::Tensor sums = at::zeros({nall, values.size(1)}, values.options());
  // With more, torch sorts the indices first, which takes longer than one thread for all.
  const OneThread one;
  if (center != 0.0) sums = sums.scatter_add(0, ends[0], center == 1.0 ? values : center * values);
  return sums.scatter_add(0, ends[1], neighbor == 1.0 ? values : neighbor * values);
}

}    // namespace

at::Tensor edge_force(const at::Tensor &edge_grad, const at::Tensor &edge_index, std::int64_t nall)
{
  check_vectors(edge_grad, edge_grad);
  return scatter(edge_grad, edge_index, nall, 1.0, -1.0);
}

at::Tensor edge_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad)
{
  check_vectors(edge_vec, edge_grad);
  return -at::mm(edge_vec.t(), edge_grad);
}

at::Tensor edge_atom_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad,
                            const at::Tensor &edge_index, std::int64_t nall, bool centroid)
{
  check_vectors(edge_vec, edge_grad);
  const at::Tensor terms = -(edge_vec.unsqueeze(2) * edge_grad.unsqueeze(1)).reshape({-1, 9});
  const double center = centroid ? 0.0 : 0.5;
  return scatter(terms, edge_index, nall, center, 1.0 - center).view({nall, 3, 3});
}

TORCH_LIBRARY_FRAGMENT(pwmlff, library)
{
  library.def("edge_force(Tensor edge_grad, Tensor edge_index, int nall) -> Tensor", &edge_force);
  library.def("edge_virial(Tensor edge_vec, Tensor edge_grad) -> Tensor", &edge_virial);
  library.def("edge_atom_virial(Tensor edge_vec, Tensor edge_grad, Tensor edge_index, int nall, "
              "bool centroid) -> Tensor",
              &edge_atom_virial);
}

}    // namespace pwmlff::models
