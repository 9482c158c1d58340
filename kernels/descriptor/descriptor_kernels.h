/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Formulas and symbols: descriptor.h.

#ifndef PWMLFF_DESCRIPTOR_KERNELS_H
#define PWMLFF_DESCRIPTOR_KERNELS_H

#include "../common/launch.h"
#include "../dp/pair_terms.h"

#include <cmath>

namespace pwmlff {

/// r and what follows from it, at any r.
template <typename T> PWMLFF_HOST_DEVICE RadialTerms<T, T> radial_terms(T r, T rmin, T rmax)
{
  const T inv_width = T(1) / (rmax - rmin);
  return {r, r < rmax ? switch_place(r, rmin, inv_width) : T(1), inv_width};
}

/// An item is an edge.
template <typename T> struct Environment {
  const T *edge_vec;    // [nedges, 3]
  T rmin, rmax;
  T *out;    // [nedges, 4]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const T *const x = edge_vec + 3 * item;
    const T r = std::sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
    const RadialTerms<T, T> radial = radial_terms(r, rmin, rmax);
    T *const env = out + 4 * item;
    env[0] = radial.s;
    for (int k = 0; k < 3; ++k) env[k + 1] = radial.q * x[k];
  }
};

/// The derivative of sum over c of grad_c R_c by the edge vector: with q = s/r,
///   (grad_0 s'/r + (q'/r) sum over k of grad_k x_k) x + q grad.  An item is an edge.
template <typename T> struct EnvironmentBackward {
  const T *grad;        // [nedges, 4]
  const T *edge_vec;    // [nedges, 3]
  T rmin, rmax;
  T *out;    // [nedges, 3]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const T *const x = edge_vec + 3 * item, *const a = grad + 4 * item;
    const T r = std::sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
    const RadialTerms<T, T> radial = radial_terms(r, rmin, rmax);
    edge_gradient(a[0] * radial.s1, a + 1, x, radial.inv_r, radial.q, radial.qp, out + 3 * item);
  }
};

/// Where an x lies in a table, and the derivatives of powers there.
template <typename T> struct TablePlace {
  std::int64_t interval;
  T t;    // x - start of the interval

  // In double: low + k width would otherwise cost a float the digits that t has left.
  PWMLFF_HOST_DEVICE TablePlace(T x, double low, double width, std::int64_t intervals) : interval(0)
  {
    const double y = std::floor((static_cast<double>(x) - low) / width);
    if (y >= static_cast<double>(intervals)) interval = intervals - 1;
    else if (y > 0.0) interval = static_cast<std::int64_t>(y);
    t = static_cast<T>(static_cast<double>(x) - (low + static_cast<double>(interval) * width));
  }

  /// p (p-1) ... (p-derivative+1), the factor that t^(p-derivative) gets.
  PWMLFF_HOST_DEVICE static T factor(std::int64_t p, std::int64_t derivative)
  {
    T product(1);
    for (std::int64_t k = 0; k < derivative; ++k) product *= static_cast<T>(p - k);
    return product;
  }
};

/// An item is one channel of an edge.
template <typename T> struct TableEmbedding {
  const T *x;        // [nedges]
  const T *table;    // [intervals, terms, channels]
  double low, width;
  std::int64_t derivative, intervals, terms, channels;
  T *out;    // [nedges, channels]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const TablePlace<T> place(x[item / channels], low, width, intervals);
    const T *const coef = table + place.interval * terms * channels + item % channels;
    T sum(0);
    for (std::int64_t p = terms - 1; p >= derivative; --p)
      sum = sum * place.t + TablePlace<T>::factor(p, derivative) * coef[p * channels];
    out[item] = sum;
  }
};

/// The derivative of sum over e of grad_e G_e by the table. An item is one channel of an edge.
template <typename T> struct TableEmbeddingBackward {
  const T *grad;    // [nedges, channels]
  const T *x;       // [nedges]
  double low, width;
  std::int64_t derivative, intervals, terms, channels;
  T *out;    // [intervals, terms, channels], added to

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const TablePlace<T> place(x[item / channels], low, width, intervals);
    T *const coef = out + place.interval * terms * channels + item % channels;
    T power = grad[item];
    for (std::int64_t p = derivative; p < terms; ++p, power *= place.t)
      add_to(&coef[p * channels], TablePlace<T>::factor(p, derivative) * power);
  }
};

// The three derivatives of sum over e, c, m of moments[center_e, c, m] env[e, c] g[e, m].

/// By the moments. An item is one channel of an edge.
template <typename T> struct Moments {
  const T *env;                  // [nedges, 4]
  const T *g;                    // [nedges, channels]
  const std::int64_t *center;    // [nedges]
  std::int64_t channels;
  T *out;    // [ncenters, 4, channels], added to

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const std::int64_t edge = item / channels;
    T *const moment = out + center[edge] * 4 * channels + item % channels;
    for (int c = 0; c < 4; ++c) add_to(&moment[c * channels], env[4 * edge + c] * g[item]);
  }
};

/// By env. An item is one component of an edge.
template <typename T> struct MomentsToEnv {
  const T *moments;              // [ncenters, 4, channels]
  const T *g;                    // [nedges, channels]
  const std::int64_t *center;    // [nedges]
  std::int64_t channels;
  T *out;    // [nedges, 4]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const std::int64_t edge = item / 4;
    const T *const moment = moments + (center[edge] * 4 + item % 4) * channels;
    T sum(0);
    for (std::int64_t m = 0; m < channels; ++m) sum += moment[m] * g[edge * channels + m];
    out[item] = sum;
  }
};

/// By g. An item is one channel of an edge.
template <typename T> struct MomentsToG {
  const T *moments;              // [ncenters, 4, channels]
  const T *env;                  // [nedges, 4]
  const std::int64_t *center;    // [nedges]
  std::int64_t channels;
  T *out;    // [nedges, channels]

  PWMLFF_HOST_DEVICE void operator()(std::int64_t item) const
  {
    const std::int64_t edge = item / channels;
    const T *const moment = moments + center[edge] * 4 * channels + item % channels;
    T sum(0);
    for (int c = 0; c < 4; ++c) sum += moment[c * channels] * env[4 * edge + c];
    out[item] = sum;
  }
};

}    // namespace pwmlff

#endif
