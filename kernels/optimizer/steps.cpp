// SPDX-License-Identifier: GPL-2.0-or-later

#include "steps.h"

#include "clones.h"

#include <algorithm>
#include <vector>

namespace {

using pwmlff::LANES;
using pwmlff::Vector;

constexpr std::int64_t COLUMNS = 512;    // whose sums stay in the first cache

PWMLFF_CLONES void move(std::int64_t n, double *__restrict__ x, const double *__restrict__ gradient,
                        double *__restrict__ m, double *__restrict__ v, const pwmlff_adam c)
{
  const double rest1 = 1.0 - c.beta1, rest2 = 1.0 - c.beta2;
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = c.factor * gradient[i];
    m[i] = c.beta1 * m[i] + rest1 * g;
    v[i] = c.beta2 * v[i] + rest2 * (g * g);
    x[i] = c.shrink * x[i] - c.rate * m[i] / (c.root * __builtin_sqrt(v[i]) + c.eps);
  }
}

PWMLFF_CLONES void average(std::int64_t n, double *__restrict__ path, const double *__restrict__ x,
                           double decay)
{
  const double rest = 1.0 - decay;
  for (std::int64_t i = 0; i < n; ++i) path[i] = decay * path[i] + rest * x[i];
}

PWMLFF_CLONES double square(std::int64_t n, const double *x)
{
  Vector lanes = {};
  std::int64_t i = 0;
  for (; i + LANES <= n; i += LANES) lanes += LOAD(x + i) * LOAD(x + i);
  double tail = 0.0;
  for (; i < n; ++i) tail += x[i] * x[i];
  return SUM_OF_LANES(lanes) + tail;
}

/// target = source, or target += source
template <class T>
inline void take(std::int64_t n, const T *__restrict__ source, double *__restrict__ target,
                 bool add)
{
  if (add)
    for (std::int64_t i = 0; i < n; ++i) target[i] += static_cast<double>(source[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) target[i] = static_cast<double>(source[i]);
}

/// Sums of some columns. `open` has the sums, [COLUMNS] each, that wait for their right neighbors:
/// after k rows there is one for each bit of k that is set, the largest first.
template <class T>
inline void sum_columns(std::int64_t nrows, std::int64_t n, std::int64_t stride, const T *rows,
                        double *open, double *out)
{
  const auto close = [&](std::int64_t depth) {
    take(n, open + (depth - 1) * COLUMNS, open + (depth - 2) * COLUMNS, true);
    return depth - 1;
  };
  std::int64_t depth = 0;
  for (std::int64_t row = 0; row < nrows; ++row) {
    take(n, rows + row * stride, open + depth * COLUMNS, false);
    ++depth;
    for (std::int64_t bits = row; bits & 1; bits >>= 1) depth = close(depth);
  }
  while (depth > 1) depth = close(depth);
  take(n, open, out, false);
}

PWMLFF_CLONES void sum_columns_float(std::int64_t nrows, std::int64_t n, std::int64_t stride,
                                     const float *rows, double *open, double *out)
{
  sum_columns(nrows, n, stride, rows, open, out);
}

PWMLFF_CLONES void sum_columns_double(std::int64_t nrows, std::int64_t n, std::int64_t stride,
                                      const double *rows, double *open, double *out)
{
  sum_columns(nrows, n, stride, rows, open, out);
}

template <class T, class Sum>
void sum_rows(std::int64_t nrows, std::int64_t n, const T *rows, double *out, const Sum &sum)
{
  std::int64_t depth = 1;
  for (std::int64_t k = nrows; k > 0; k >>= 1) ++depth;
  std::vector<double> open(static_cast<std::size_t>(depth * COLUMNS));
  for (std::int64_t column = 0; column < n; column += COLUMNS)
    sum(nrows, std::min(COLUMNS, n - column), n, rows + column, open.data(), out + column);
}

}    // namespace

void pwmlff_adam_step(int64_t n, double *x, const double *gradient, double *m, double *v,
                      const pwmlff_adam *constants)
{
  move(n, x, gradient, m, v, *constants);
}

void pwmlff_average(int64_t n, double *path, const double *x, double decay)
{
  average(n, path, x, decay);
}

double pwmlff_square(int64_t n, const double *x) { return square(n, x); }

void pwmlff_sum_rows_float(int64_t nrows, int64_t n, const float *rows, double *out)
{
  sum_rows(nrows, n, rows, out, sum_columns_float);
}

void pwmlff_sum_rows_double(int64_t nrows, int64_t n, const double *rows, double *out)
{
  sum_rows(nrows, n, rows, out, sum_columns_double);
}
