// SPDX-License-Identifier: GPL-2.0-or-later

#include "calc_ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace pwmlff {
namespace {

void check_slots(const at::Tensor &list_neigh, const at::Tensor &dE, const at::Tensor &Ri_d)
{
  TORCH_CHECK(list_neigh.dim() == 4 && list_neigh.size(2) == 1, "list_neigh has shape ",
              list_neigh.sizes(), "; expected [batch, natoms, 1, slots]");
  const std::int64_t batch = list_neigh.size(0), natoms = list_neigh.size(1),
                     n = list_neigh.size(3);
  TORCH_CHECK(dE.sizes() == at::IntArrayRef({batch, natoms, 1, 4 * n}), "dE has shape ", dE.sizes(),
              "; expected ", at::IntArrayRef({batch, natoms, 1, 4 * n}));
  TORCH_CHECK(Ri_d.sizes() == at::IntArrayRef({batch, natoms, 4 * n, 3}), "Ri_d has shape ",
              Ri_d.sizes(), "; expected ", at::IntArrayRef({batch, natoms, 4 * n, 3}));
}

// Force of each slot on its neighbor [batch, natoms, n, 3]; zero for empty slots.
at::Tensor slot_force(const at::Tensor &list_neigh, const at::Tensor &dE, const at::Tensor &Ri_d)
{
  const std::int64_t batch = list_neigh.size(0), natoms = list_neigh.size(1),
                     n = list_neigh.size(3);
  const at::Tensor force =
      at::matmul(dE.view({batch, natoms, n, 1, 4}), Ri_d.view({batch, natoms, n, 4, 3})).squeeze(3);
  const at::Tensor in_use = (list_neigh >= 0).view({batch, natoms, n, 1});
  return at::where(in_use, force, at::zeros({}, force.options()));
}

}    // namespace

std::vector<at::Tensor> calculate_force(const at::Tensor &list_neigh, const at::Tensor &dE,
                                        const at::Tensor &Ri_d, const at::Tensor &force,
                                        const at::Tensor &nghost)
{
  check_slots(list_neigh, dE, Ri_d);
  const std::int64_t batch = list_neigh.size(0), natoms = list_neigh.size(1);
  const std::int64_t nall = natoms + nghost.item<std::int64_t>();
  TORCH_CHECK(force.dim() == 3 && force.size(0) == batch && force.size(2) == 3 &&
                  (force.size(1) == natoms || force.size(1) == nall),
              "Force has shape ", force.sizes(), "; expected ", at::IntArrayRef({batch, natoms, 3}),
              " or ", at::IntArrayRef({batch, nall, 3}));
  const at::Tensor own = at::constant_pad_nd(force, {0, 0, 0, nall - force.size(1)});
  const at::Tensor target = list_neigh.view({batch, -1, 1}).clamp_min(0).to(at::kLong);
  const at::Tensor slot_forces = slot_force(list_neigh, dE, Ri_d).view({batch, -1, 3});
  return {own.scatter_add(1, target.expand_as(slot_forces), slot_forces)};
}

std::vector<at::Tensor> calculate_virial(const at::Tensor &list_neigh, const at::Tensor &dE,
                                         const at::Tensor &Rij, const at::Tensor &Ri_d,
                                         const at::Tensor &)
{
  check_slots(list_neigh, dE, Ri_d);
  const std::int64_t batch = list_neigh.size(0), natoms = list_neigh.size(1),
                     n = list_neigh.size(3);
  TORCH_CHECK(Rij.sizes() == at::IntArrayRef({batch, natoms, n, 3}), "Rij has shape ", Rij.sizes(),
              "; expected ", at::IntArrayRef({batch, natoms, n, 3}));
  const at::Tensor slot_forces = slot_force(list_neigh, dE, Ri_d).view({batch, -1, 3});
  return {at::matmul(Rij.reshape({batch, -1, 3}).transpose(1, 2), slot_forces).reshape({batch, 9})};
}

std::vector<at::Tensor> calculate_compress(const at::Tensor &f2, const at::Tensor &coefficient)
{
  TORCH_CHECK(coefficient.dim() == 3 && f2.dim() == 1 && f2.size(0) == coefficient.size(0) &&
                  coefficient.size(2) > 0,
              "f2 has shape ", f2.sizes(), " and coefficient ", coefficient.sizes(),
              "; expected [n] and [n, nodes, order+1]");
  const at::Tensor x = f2.unsqueeze(1);
  at::Tensor value = coefficient.select(2, 0);
  for (std::int64_t power = 1; power < coefficient.size(2); ++power)
    value = value * x + coefficient.select(2, power);
  return {value};
}

void register_calc_ops(torch::Library &library)
{
  library.def(
      "calculateForce(Tensor list_neigh, Tensor dE, Tensor Ri_d, Tensor Force, Tensor nghost)"
      " -> Tensor[]",
      TORCH_FN(calculate_force));
  library.def(
      "calculateVirial(Tensor list_neigh, Tensor dE, Tensor Rij, Tensor Ri_d, Tensor nghost)"
      " -> Tensor[]",
      TORCH_FN(calculate_virial));
  library.def("calculateCompress(Tensor f2, Tensor coefficient) -> Tensor[]",
              TORCH_FN(calculate_compress));
}

}    // namespace pwmlff
