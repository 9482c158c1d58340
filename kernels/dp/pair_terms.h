/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// The formulas of an edge for the CPU, GPUs, training and ops; symbols and signs in network.h.
//
// T is float or double; V is T, a vector of T (simd.h) or, where operators are enough, at::Tensor.

#ifndef PWMLFF_DP_PAIR_TERMS_H
#define PWMLFF_DP_PAIR_TERMS_H

#include "../common/launch.h"

namespace pwmlff {

/// Whether an embedding layer adds its input: x where the width stays, (x, x) where it doubles.
PWMLFF_FORMULA constexpr bool embedding_residual(int in, int out)
{
  return out == in || out == 2 * in;
}

/// One output y = t, or x + t with a residual, and its derivative in any direction.
/// @param t  tanh(z)
/// @param dx, dz the derivatives of x and z
template <class V>
PWMLFF_FORMULA void embedding_output(bool residual, V x, V dx, V t, V dz, V &y, V &dy)
{
  const V dt = (1.0 - t * t) * dz;
  y = residual ? t + x : t;
  dy = residual ? dt + dx : dt;
}

}    // namespace pwmlff

#endif
