// SPDX-License-Identifier: GPL-2.0-or-later

// The ops that DP files call which were exported on a GPU node (or, the same under another name, on
// a CPU node). Made of torch's own ops, so they run on every device, in float32 and float64, and
// are differentiable to any order.
//
// Slots: a center has n neighbor slots; list_neigh holds the index of the neighbor among local and
// ghost atoms, counted from 0, or -1 for an empty slot. Ri is the environment matrix, four numbers
// a slot, dE = dE/dRi, and Ri_d = dRi/dx_j of the neighbor times -1 (the exporting software's
// sign), so that dE Ri_d is the force that a slot exerts on its neighbor.

#include <ATen/ATen.h>
#include <torch/library.h>

namespace pwmlff::models {
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

/// Add the forces on neighbors to those on centers.
/// @param list_neigh int32 [batch, natoms, 1, n]
/// @param dE         [batch, natoms, 1, n*4]
/// @param Ri_d       [batch, natoms, n*4, 3]
/// @param force      [batch, natoms or natoms+nghost, 3] holds the centers' own part
/// @param nghost     int64 scalar
/// @return one tensor [batch, natoms+nghost, 3]
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

/// Sum of r_ij (x) force on the neighbor, over all slots in use.
/// @param Rij [batch, natoms, n, 3] x_j - x_i
/// @return one tensor [batch, 9], row by row
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

/// Evaluate polynomials, highest power first: sum_p coefficient[., ., p] f2^(order-p).
/// @param f2          [n]
/// @param coefficient [n, nodes, order+1]
/// @return one tensor [n, nodes]
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

void declare(torch::Library &library)
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

}    // namespace

TORCH_LIBRARY_FRAGMENT(CalcOps_cpu, library) { declare(library); }

TORCH_LIBRARY_FRAGMENT(CalcOps_cuda, library) { declare(library); }

}    // namespace pwmlff::models
