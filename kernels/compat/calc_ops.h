// SPDX-License-Identifier: GPL-2.0-or-later

// The ops that DP files call which were exported on a GPU node (or, the same under another name, on
// a CPU node). Made of torch's own ops, so they run on every device, in float32 and float64, and
// are differentiable to any order.
//
// Slots: a center has n neighbor slots; list_neigh holds the index of the neighbor among local and
// ghost atoms, counted from 0, or -1 for an empty slot. Ri is the environment matrix, four numbers
// a slot, dE = dE/dRi, and Ri_d = dRi/dx_j of the neighbor times -1 (the exporting software's
// sign), so that dE Ri_d is the force that a slot exerts on its neighbor.

#ifndef PWMLFF_CALC_OPS_H
#define PWMLFF_CALC_OPS_H

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch {
class Library;
}

namespace pwmlff {

/// Add the forces on neighbors to those on centers.
/// @param list_neigh int32 [batch, natoms, 1, n]
/// @param dE         [batch, natoms, 1, n*4]
/// @param Ri_d       [batch, natoms, n*4, 3]
/// @param force      [batch, natoms or natoms+nghost, 3] holds the centers' own part
/// @param nghost     int64 scalar
/// @return one tensor [batch, natoms+nghost, 3]
std::vector<at::Tensor> calculate_force(const at::Tensor &list_neigh, const at::Tensor &dE,
                                        const at::Tensor &Ri_d, const at::Tensor &force,
                                        const at::Tensor &nghost);

/// Sum of r_ij (x) force on the neighbor, over all slots in use.
/// @param Rij [batch, natoms, n, 3] x_j - x_i
/// @return one tensor [batch, 9], row by row
std::vector<at::Tensor> calculate_virial(const at::Tensor &list_neigh, const at::Tensor &dE,
                                         const at::Tensor &Rij, const at::Tensor &Ri_d,
                                         const at::Tensor &nghost);

/// Evaluate polynomials, highest power first: sum_p coefficient[., ., p] f2^(order-p).
/// @param f2          [n]
/// @param coefficient [n, nodes, order+1]
/// @return one tensor [n, nodes]
std::vector<at::Tensor> calculate_compress(const at::Tensor &f2, const at::Tensor &coefficient);

/// Declare calculateForce, calculateVirial and calculateCompress in a library of that name.
void register_calc_ops(torch::Library &library);

}    // namespace pwmlff

#endif
