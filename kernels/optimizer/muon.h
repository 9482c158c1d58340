// SPDX-License-Identifier: GPL-2.0-or-later

// Steps of Muon for matrices of weights, in plain C types so that Python hands over NumPy's arrays
// through ctypes (pwmlff.train.steps). The bits depend neither on the processor nor on threads or
// ranks.

#pragma once

#include <stdint.h>

extern "C" {

/// Constants of a step of Muon, see pwmlff_muon_step().
struct pwmlff_muon {
  double beta;
  double shrink;    // 1 - rate weight_decay
  double factor;    // of the gradient
  double rate;
};

/// For each matrix, x = shrink before - rate 0.2 sqrt(max(rows, columns)) orthogonal(d), where
/// d = beta m + (1 - beta) factor gradient (K. Jordan et al. 2024, Muon,
/// https://kellerjordan.github.io/posts/muon; the root is of doi:10.48550/arXiv.2502.16982).
/// A matrix whose d is below a thousandth of the root of its v has had no gradient for long, as of
/// a net whose nodes are all saturated: it changes by `shrink` alone.
/// @param places           [nmatrices, 3] first number, rows and columns of each
/// @param before,gradient,m  all parameters, what is no matrix is not read
/// @param v                likewise, means of squares of the gradient
/// @param x                all parameters, the matrices are written
void pwmlff_muon_step(int64_t nmatrices, const int64_t *places, const double *before,
                      const double *gradient, const double *m, const double *v, double *x,
                      const struct pwmlff_muon *constants);

/// out = U D V^T of a matrix U S V^T, where D is diagonal, like S, and its numbers are about 1.
///
/// Five rounds of X <- a X + b (X X^T) X + c (X X^T)^2 X from the matrix over its Frobenius norm,
/// with the constants of Jordan et al.: singular values above a hundredth of the norm end between
/// 0.68 and 1.14, smaller ones are raised 485-fold at most. A matrix of zeros, or of
/// numbers whose squares are none, gives zeros.
///
/// In float; the rounds are made on the square matrix of the shorter side, X X^T or X^T X.
/// @param matrix,out  [rows, columns]; they may be one array
void pwmlff_orthogonal(int64_t rows, int64_t columns, const double *matrix, double *out);
}
