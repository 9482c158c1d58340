// SPDX-License-Identifier: GPL-2.0-or-later

#include "muon.h"

#include "clones.h"
#include "steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace {

constexpr double A = 3.4445, B = -4.7750, C = 2.0315;
constexpr int ROUNDS = 5;
constexpr double SCALE = 0.2;                     // RMS of the usual step of Adam, over its rate
constexpr double FORGOTTEN = 1e-3;                // of the usual gradient, below which none is left
constexpr double UNDERFLOW = 1e-290;              // of a square that still has all its digits
constexpr std::int64_t ROWS = 4, COLUMNS = 16;    // of a product, that stay in registers
constexpr std::int64_t HALF = COLUMNS / 2;        // in one register of AVX2

typedef float Half __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

std::int64_t padded(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Numbers with zeros up to whole blocks of rows and columns.
struct OwnedMatrix {
  std::int64_t rows, columns, stride;
  std::vector<float> numbers;

  OwnedMatrix(std::int64_t r, std::int64_t c) :
      rows(r),
      columns(c),
      stride(padded(c, COLUMNS)),
      numbers(static_cast<std::size_t>(padded(r, ROWS) * stride))
  {
  }
  float &operator()(std::int64_t i, std::int64_t j)
  {
    return numbers[static_cast<std::size_t>(i * stride + j)];
  }
};

/// out = left right or left^T right: all that is added to a number of `out`, one row of `right`
/// after another.
template <bool TRANSPOSED>
__attribute__((always_inline)) inline void multiply_blocks(std::int64_t rows, std::int64_t depth,
                                                           std::int64_t columns, const float *left,
                                                           std::int64_t stride,
                                                           const float *__restrict__ right,
                                                           float *__restrict__ out)
{
  for (std::int64_t j = 0; j < columns; j += COLUMNS)
    for (std::int64_t i = 0; i < rows; i += ROWS) {
      Half sum[ROWS][2] = {};
      for (std::int64_t k = 0; k < depth; ++k) {
        const float *row = right + k * columns + j;
        const Half first = *reinterpret_cast<const Half *>(row);
        const Half second = *reinterpret_cast<const Half *>(row + HALF);
        for (int r = 0; r < ROWS; ++r) {
          const float factor = TRANSPOSED ? left[k * stride + i + r] : left[(i + r) * stride + k];
          sum[r][0] += factor * first;
          sum[r][1] += factor * second;
        }
      }
      for (int r = 0; r < ROWS; ++r)
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<Half *>(out + (i + r) * columns + j + half * HALF) = sum[r][half];
    }
}

PWMLFF_CLONES void multiply_straight(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                                     const float *left, std::int64_t stride, const float *right,
                                     float *out)
{
  multiply_blocks<false>(rows, depth, columns, left, stride, right, out);
}

PWMLFF_CLONES void multiply_turned(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                                   const float *left, std::int64_t stride, const float *right,
                                   float *out)
{
  multiply_blocks<true>(rows, depth, columns, left, stride, right, out);
}

/// out = left right
void multiply(const OwnedMatrix &left, const OwnedMatrix &right, OwnedMatrix &out)
{
  multiply_straight(left.rows, left.columns, right.stride, left.numbers.data(), left.stride,
                    right.numbers.data(), out.numbers.data());
}

/// out = left^T right
void multiply_transposed(const OwnedMatrix &left, const OwnedMatrix &right, OwnedMatrix &out)
{
  multiply_turned(left.columns, left.rows, right.stride, left.numbers.data(), left.stride,
                  right.numbers.data(), out.numbers.data());
}

}    // namespace

void pwmlff_orthogonal(int64_t rows, int64_t columns, const double *matrix, double *out)
{
  const double square = pwmlff_square(rows * columns, matrix);
  const double scale = square > UNDERFLOW ? 1.0 / std::sqrt(square) : 0.0;
  OwnedMatrix x(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      x(i, j) = static_cast<float>(scale * matrix[i * columns + j]);

  // On the shorter side, with G = X X^T or X^T X and P = a + b G + c G^2, a round multiplies X by P
  // and is G <- P G P; all of these commute.
  const bool tall = rows > columns;
  const std::int64_t side = tall ? columns : rows;
  OwnedMatrix gram(side, side);
  if (tall) multiply_transposed(x, x, gram);
  else {
    OwnedMatrix transposed(columns, rows);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) transposed(j, i) = x(i, j);
    multiply(x, transposed, gram);
  }
  OwnedMatrix polynomial(gram), all(gram), product(gram);
  for (int round = 0; round < ROUNDS; ++round) {
    multiply(gram, gram, polynomial);
    for (std::int64_t i = 0; i < side; ++i)
      for (std::int64_t j = 0; j < side; ++j)
        polynomial(i, j) = static_cast<float>(C) * polynomial(i, j) +
                           static_cast<float>(B) * gram(i, j) +
                           (i == j ? static_cast<float>(A) : 0.0F);
    if (round == 0) all = polynomial;
    else {
      multiply(polynomial, all, product);
      std::swap(all, product);
    }
    if (round + 1 < ROUNDS) {
      multiply(polynomial, gram, product);
      multiply(product, polynomial, gram);
    }
  }

  OwnedMatrix result(rows, columns);
  multiply(tall ? x : all, tall ? all : x, result);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      out[i * columns + j] = static_cast<double>(result(i, j));
}

void pwmlff_muon_step(int64_t nmatrices, const int64_t *places, const double *before,
                      const double *gradient, const double *m, const double *v, double *x,
                      const pwmlff_muon *c)
{
  std::vector<double> step;
  for (int64_t k = 0; k < nmatrices; ++k, places += 3) {
    const int64_t first = places[0], rows = places[1], columns = places[2], n = rows * columns;
    step.resize(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      step[static_cast<std::size_t>(i)] =
          c->beta * m[first + i] + (1.0 - c->beta) * (c->factor * gradient[first + i]);
    // What has had no gradient for long would still go on at full speed, by what rounding leaves.
    const double usual = std::accumulate(v + first, v + first + n, 0.0);
    if (pwmlff_square(n, step.data()) <= FORGOTTEN * FORGOTTEN * usual)
      std::fill(step.begin(), step.end(), 0.0);
    else pwmlff_orthogonal(rows, columns, step.data(), step.data());
    const double rate = c->rate * SCALE * std::sqrt(static_cast<double>(std::max(rows, columns)));
    for (int64_t i = 0; i < n; ++i)
      x[first + i] = c->shrink * before[first + i] - rate * step[static_cast<std::size_t>(i)];
  }
}
