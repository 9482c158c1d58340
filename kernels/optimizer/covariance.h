// SPDX-License-Identifier: GPL-2.0-or-later

// The covariance of a Kalman filter, block by block, in plain C types so that Python hands over
// NumPy's arrays through ctypes (pwmlff.train.kalman, which states the filter).
//
// A block of n parameters is P = c (P0 - sum_k u_k u_k^T), symmetric. P0 is stored as the rows of
// its upper triangle, one after another: row i holds columns i .. n-1, so n (n + 1) / 2 numbers.
// Blocks lie one after another, and so do their parts of vectors: `total` is the sum of sizes.
//
// All additions have an order that depends neither on the processor nor on threads: eight lanes by
// columns, which are then added in pairs; products are rounded before they are added.

#pragma once

#include <stdint.h>

extern "C" {

/// out = P h and variances = h^T P h of each block, in one pass over P0.
/// @param nblocks,sizes  sizes[nblocks], parameters of each block
/// @param p0             upper triangles of all blocks
/// @param npending,u     u[npending][stride], of which the first `total` numbers of a row are used
/// @param h,out          [total]
/// @param variances      [nblocks]
void pwmlff_covariance_product(int64_t nblocks, const int64_t *sizes, const double *p0,
                               int64_t npending, const double *u, int64_t stride, double c,
                               const double *h, double *out, double *variances);

/// P0 = c (P0 - sum_k u_k u_k^T), in place; arguments as above.
void pwmlff_covariance_flush(int64_t nblocks, const int64_t *sizes, double *p0, int64_t npending,
                             const double *u, int64_t stride, double c);
}
