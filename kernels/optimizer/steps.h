// SPDX-License-Identifier: GPL-2.0-or-later

// What each step of training does with a whole gradient, in one pass each, in plain C types so that
// Python hands over NumPy's arrays through ctypes (pwmlff.train.steps). The order of all additions
// is that of the indices alone: the bits depend neither on the processor nor on threads or ranks.

#pragma once

#include <stdint.h>

extern "C" {

/// Constants of a step of Adam, see pwmlff_adam_step().
struct pwmlff_adam {
  double beta1, beta2, eps;
  double shrink;    // 1 - rate weight_decay
  double factor;    // of the gradient
  double rate;      // rate / (1 - beta1^t)
  double root;      // 1 / sqrt(1 - beta2^t)
};

/// g = factor gradient; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// x = shrink x - rate m / (root sqrt(v) + eps)
/// @param n  numbers in each array
void pwmlff_adam_step(int64_t n, double *x, const double *gradient, double *m, double *v,
                      const struct pwmlff_adam *constants);

/// path = decay path + (1 - decay) x
void pwmlff_average(int64_t n, double *path, const double *x, double decay);

/// Sum of squares.
double pwmlff_square(int64_t n, const double *x);

/// Sum of rows in the order of a binary tree: neighbors in pairs, then pairs of these; a row
/// without a neighbor goes on as it is.
/// @param rows  [nrows, n], nrows at least 1
/// @param out   [n]
void pwmlff_sum_rows_float(int64_t nrows, int64_t n, const float *rows, double *out);
void pwmlff_sum_rows_double(int64_t nrows, int64_t n, const double *rows, double *out);
}
