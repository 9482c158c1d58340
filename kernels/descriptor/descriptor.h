/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// The parts of a Deep Potential as ops, to train one or to build another model from them. The
// engine that runs finished models is kernels/dp. No op converts units: lengths are those of
// edge_vec, energies what the fitting net was trained on.
//
// With r_ij = x_j - x_i = (x, y, z), r its length, M the width of the embedding:
//
//   dp_environment    R_e = s(r) (1, x/r, y/r, z/r)                                   [E, 4]
//     s(r) = 1/r                                     r < rmin
//          = (1/r) (u^3 (-6 u^2 + 15 u - 10) + 1)    u = (r - rmin)/(rmax - rmin)
//          = 0                                       r >= rmax
//   dp_embedding      G_e = net(x_e), layer by layer y = tanh(x W + b), plus x where the
//                     width stays, plus (x, x) where it doubles                       [E, M]
//   table_embedding   G_e = sum_p table[k, p] (x_e - low - k width)^p, or a derivative of it
//                     by x; k = floor((x_e - low)/width), and the last interval holds its
//                     end too                                                         [E, M]
//   dp_moments        T_i = sum over the edges of center i of env_e (x) g_e           [n, 4, M]
//   dp_descriptor     D_i = T_i^T T_i[:, :m2], row by row                             [n, M*m2]
//   dp_fitting        E_i = net(D_i): y = tanh(x W + b), or x + dt y where the layer has a
//                     dt; the last layer is linear and of width 1                     [n]
//
// What lies between them (davg, dstd, the division by the number of slots and the constants of
// empty slots, docs/model_contract.md) is a torch expression each: tests/kernels/test_descriptor.py
// puts a whole model together.
//
// All are differentiable any number of times, on the CPU and on CUDA devices, in float32 and
// float64; tensors of one call share device and type. Errors are c10::Error, in Python
// RuntimeError. What needs the values is checked on the CPU only, for a GPU would have to wait for
// it; there the caller sees to it that no edge has length zero (the result is not a number), that
// no x leaves the table (the polynomial of the nearest interval goes on) and that
// 0 <= center < ncenters (memory is overwritten). There dp_moments and table_embedding_backward add
// up in no fixed order.
//
// Source: Zhang et al. 2018, arXiv:1805.09003 (DeepPot-SE).

#ifndef PWMLFF_DESCRIPTOR_H
#define PWMLFF_DESCRIPTOR_H

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch {
class Library;
}

namespace pwmlff {

/// Descriptors [n, M*m2] of moments [n, 4, M].
/// @throws c10::Error for another shape, or m2 outside 1 .. M
at::Tensor dp_descriptor(const at::Tensor &moments, std::int64_t m2);

/// Energies [n] of descriptors [n, in].
/// @param weight    of each layer [in, out]
/// @param bias      of each layer [out] or [1, out]
/// @param resnet_dt of each layer but the last [out] or [1, out], or without elements: no residual
/// @throws c10::Error naming the layer whose shape does not fit
at::Tensor dp_fitting(const at::Tensor &x, at::TensorList weight, at::TensorList bias,
                      at::TensorList resnet_dt);

/// Embeddings [E, M] of numbers [E]; weight and bias as above.
at::Tensor dp_embedding(const at::Tensor &x, at::TensorList weight, at::TensorList bias);

/// Declare the ops above and those with kernels of their own in torch.ops.pwmlff. The latter's
/// schemas and derivatives are in environment.cpp, table.cpp and moments.cpp:
void register_descriptor_ops(torch::Library &library);
void register_environment_ops(torch::Library &library);
void register_table_ops(torch::Library &library);
void register_moments_ops(torch::Library &library);

}    // namespace pwmlff

#endif
