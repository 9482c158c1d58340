// SPDX-License-Identifier: GPL-2.0-or-later

// Forces and virials from the derivatives of the energy with respect to edge vectors, for any model
// whose energy is a function of r_ij = x_j - x_i. With g_e = dE/dr_e for edge e from i to j:
//
//   force_k    = -dE/dx_k = sum over edges of k as center of g_e - sum over edges to k of g_e
//   virial     = -sum_e r_e (x) g_e                      the sign of LAMMPS's Pair::virial
//   virial of an atom: each term of that sum half to i and half to j (LAMMPS's compute
//   stress/atom),
//                or all to j (centroid; Fan et al. 2015, doi:10.1103/PhysRevB.92.094301)
//
// They are made of operators of torch: differentiable any number of times, on all its devices, in
// all its floating-point types. In Python they are torch.ops.pwmlff.*.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pwmlff::models {

/// Forces [nall, 3] from edge_grad [E, 3] and edge_index int64 [2, E].
/// @throws c10::Error for wrong shapes, types or devices, or an index outside 0 .. nall-1 (CPU
///        only)
at::Tensor edge_force(const at::Tensor &edge_grad, const at::Tensor &edge_index, std::int64_t nall);

/// Virial [3, 3] from edge_vec [E, 3] and edge_grad [E, 3].
at::Tensor edge_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad);

/// Virials of atoms [nall, 3, 3]; centroid chooses who gets the terms.
at::Tensor edge_atom_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad,
                            const at::Tensor &edge_index, std::int64_t nall, bool centroid);

}    // namespace pwmlff::models
