// SPDX-License-Identifier: GPL-2.0-or-later

#include "covariance.h"

#include "clones.h"

namespace {

using pwmlff::LANES;
using pwmlff::Vector;

constexpr int ROWS = 4;    // that a flush changes together

/// Sum of a[i] b[i].
PWMLFF_CLONES double dot(std::int64_t n, const double *a, const double *b)
{
  Vector lanes = {};
  std::int64_t i = 0;
  for (; i + LANES <= n; i += LANES) lanes += LOAD(a + i) * LOAD(b + i);
  double tail = 0.0;
  for (; i < n; ++i) tail += a[i] * b[i];
  return SUM_OF_LANES(lanes) + tail;
}

/// y += a x
PWMLFF_CLONES void add(std::int64_t n, double a, const double *x, double *y)
{
  std::int64_t i = 0;
  for (; i + LANES <= n; i += LANES) STORE(y + i, LOAD(y + i) + a * LOAD(x + i));
  for (; i < n; ++i) y[i] += a * x[i];
}

/// y = P0 h of one block: a row serves as row and, beyond the diagonal, as column.
PWMLFF_CLONES void product(std::int64_t n, const double *p0, const double *h, double *y)
{
  for (std::int64_t i = 0; i < n; ++i) y[i] = 0.0;
  const double *row = p0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t m = n - i - 1;
    const double *rest = row + 1, *h_rest = h + i + 1;
    double *y_rest = y + i + 1;
    const double hi = h[i];
    Vector lanes = {};
    std::int64_t j = 0;
    for (; j + LANES <= m; j += LANES) {
      const Vector p = LOAD(rest + j);
      lanes += p * LOAD(h_rest + j);
      STORE(y_rest + j, LOAD(y_rest + j) + p * hi);
    }
    double tail = row[0] * hi;
    for (; j < m; ++j) {
      tail += rest[j] * h_rest[j];
      y_rest[j] += rest[j] * hi;
    }
    y[i] += SUM_OF_LANES(lanes) + tail;
    row += m + 1;
  }
}

/// The same as flush for columns first .. last-1 of row i.
inline void flush_some(std::int64_t i, std::int64_t first, std::int64_t last, double *row,
                       std::int64_t npending, const double *u, std::int64_t stride, double c)
{
  for (std::int64_t j = first; j < last; ++j) {
    double s = 0.0;
    for (std::int64_t k = 0; k < npending; ++k) s += u[k * stride + i] * u[k * stride + j];
    row[j] = c * (row[j] - s);
  }
}

/// P0 = c (P0 - sum_k u_k u_k^T) of one block. ROWS rows at a time share what is loaded of u.
PWMLFF_CLONES void flush(std::int64_t n, double *p0, std::int64_t npending, const double *u,
                         std::int64_t stride, double c)
{
  double *rows[ROWS];    // P[i + r][j] is rows[r][j]
  rows[0] = p0;
  for (std::int64_t i = 0; i < n; i += ROWS) {
    const std::int64_t nrows = n - i < ROWS ? n - i : ROWS;
    for (std::int64_t r = 1; r < nrows; ++r) rows[r] = rows[r - 1] + (n - (i + r));
    std::int64_t j = i + ROWS;
    for (; nrows == ROWS && j + 2 * LANES <= n; j += 2 * LANES) {
      Vector s[ROWS][2] = {};
      for (std::int64_t k = 0; k < npending; ++k) {
        const double *uk = u + k * stride;
        const Vector left = LOAD(uk + j), right = LOAD(uk + j + LANES);
        for (int r = 0; r < ROWS; ++r) {
          s[r][0] += uk[i + r] * left;
          s[r][1] += uk[i + r] * right;
        }
      }
      for (int r = 0; r < ROWS; ++r) {
        double *p = rows[r] + j;
        STORE(p, c * (LOAD(p) - s[r][0]));
        STORE(p + LANES, c * (LOAD(p + LANES) - s[r][1]));
      }
    }
    // What is left: the corner at the diagonal, and the last columns.
    for (std::int64_t r = 0; r < nrows; ++r) {
      const std::int64_t corner = i + ROWS < n ? i + ROWS : n;
      flush_some(i + r, i + r, corner, rows[r], npending, u, stride, c);
      flush_some(i + r, j, n, rows[r], npending, u, stride, c);
    }
    if (nrows == ROWS) rows[0] = rows[ROWS - 1] + (n - (i + ROWS));
  }
}

}    // namespace

void pwmlff_covariance_product(int64_t nblocks, const int64_t *sizes, const double *p0,
                               int64_t npending, const double *u, int64_t stride, double c,
                               const double *h, double *out, double *variances)
{
  for (int64_t b = 0; b < nblocks; ++b) {
    const int64_t n = sizes[b];
    product(n, p0, h, out);
    for (int64_t k = 0; k < npending; ++k) add(n, -dot(n, u + k * stride, h), u + k * stride, out);
    for (int64_t i = 0; i < n; ++i) out[i] *= c;
    variances[b] = dot(n, h, out);
    p0 += n * (n + 1) / 2;
    u += n;
    h += n;
    out += n;
  }
}

void pwmlff_covariance_flush(int64_t nblocks, const int64_t *sizes, double *p0, int64_t npending,
                             const double *u, int64_t stride, double c)
{
  for (int64_t b = 0; b < nblocks; ++b) {
    const int64_t n = sizes[b];
    flush(n, p0, npending, u, stride, c);
    p0 += n * (n + 1) / 2;
    u += n;
  }
}
