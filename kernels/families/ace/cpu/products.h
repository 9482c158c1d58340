// SPDX-License-Identifier: GPL-2.0-or-later

// Densities of as many centers as a vector has lanes, from their moments, and back (plan.h). All of
// it in float64: terms of densities cancel by up to five digits.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../plan.h"

namespace pwmlff::PWMLFF_ISA::ace {

constexpr int width = lanes<double>;

class Products {
 public:
  explicit Products(const AceSpeciesPlan &plan) :
      ndensity(plan.ndensity),
      nmoments(plan.nmoments),
      nvalues(plan.nvalues),
      nfunctions(plan.nfunctions)
  {
    copy(products, plan.products);
    copy(single, plan.single);
    copy(single_coefficients, plan.single_coefficients);
    copy(runs, plan.runs);
    copy(y, plan.y);
    copy(coefficients, plan.coefficients);
    copy(first_function, plan.first);
    copy(functions, plan.functions);
    copy(gen_cgs, plan.gen_cgs);
  }

  /// @param values [nvalues] vectors, of which the moments are there
  /// @param rho    [ndensity] vectors
  void forward(double *values, double *rho) const
  {
    if (ndensity == 1) sum_up<1>(values, rho);
    else if (ndensity == 2) sum_up<2>(values, rho);
    else sum_up<0>(values, rho);
  }

  /// @param by_rho [ndensity] vectors
  /// @param slopes [nvalues] vectors, out: derivatives by the moments, and scratch
  void backward(const double *values, const double *by_rho, double *slopes) const
  {
    if (ndensity == 1) pull_back<1>(values, by_rho, slopes);
    else if (ndensity == 2) pull_back<2>(values, by_rho, slopes);
    else pull_back<0>(values, by_rho, slopes);
  }

  /// @param values [nvalues] vectors, as forward() leaves them
  /// @param b      [nfunctions] vectors, to which B functions are added
  void project(const double *values, double *b) const
  {
    const int *next = first_function.get();
    const auto add_term = [&](Vector term) {
      for (int t = next[0]; t < next[1]; ++t) add(b, functions[t], gen_cgs[t] * term);
      ++next;
    };
    for (std::size_t k = 0; k < single.size(); ++k) add_term(at(values, single[k]));
    for (const AceRun *run = runs.get(), *end = run + runs.size(); run < end; ++run) {
      const First x(*run, values);
      for (int k = 0; k < run->count; ++k) add_term(x.term(values, y[run->first + k]));
    }
  }

  const int ndensity, nmoments, nvalues, nfunctions;

 private:
  using Vector = Vec<double>;

  template <class T> static void copy(Buffer<T> &to, const std::vector<T> &from)
  {
    Buffer<T> exact(from.size());
    for (std::size_t k = 0; k < from.size(); ++k) exact[k] = from[k];
    to.swap(exact);
  }
  static Vector at(const double *values, int k)
  {
    return load(values + static_cast<std::ptrdiff_t>(k) * width);
  }
  static void add(double *values, int k, Vector v)
  {
    double *const p = values + static_cast<std::ptrdiff_t>(k) * width;
    store(p, load(p) + v);
  }

  /// The factor that the terms of a run share.
  struct First {
    First(const AceRun &run, const double *values) :
        is_real(run.kind == AceProductKind::real), re(at(values, run.x))
    {
      if (!is_real) im = at(values, run.x + 1);
      if (run.kind == AceProductKind::complex) im = -im;
    }
    /// The real part of its product with a value.
    Vector term(const double *values, int k) const
    {
      Vector value = re * at(values, k);
      if (!is_real) value += im * at(values, k + 1);
      return value;
    }

    const bool is_real;
    const Vector re;
    Vector im{};
  };

  /// rho += coefficients value; N is their number, or 0 for that of run time.
  template <int N> void add_density(Vector *rho, const double *c, Vector value) const
  {
#pragma GCC unroll 4
    for (int p = 0; p < (N ? N : ndensity); ++p) rho[p] += c[p] * value;
  }
  template <int N> Vector weight(const Vector *by_rho, const double *c) const
  {
    Vector sum{};
#pragma GCC unroll 4
    for (int p = 0; p < (N ? N : ndensity); ++p) sum += c[p] * by_rho[p];
    return sum;
  }

  template <int N> void sum_up(double *values, double *out) const
  {
    for (const AceProduct *f = products.get(), *end = f + products.size(); f < end; ++f) {
      const Vector xr = at(values, f->x), yr = at(values, f->y);
      double *const to = values + static_cast<std::ptrdiff_t>(f->out) * width;
      if (f->kind == AceProductKind::real) {
        store(to, xr * yr);
        continue;
      }
      const Vector yi = at(values, f->y + 1);
      if (f->kind == AceProductKind::mixed) {
        store(to, xr * yr);
        store(to + width, xr * yi);
        continue;
      }
      const Vector xi = at(values, f->x + 1);
      const bool conjugate = f->kind == AceProductKind::conjugate;
      store(to, conjugate ? xr * yr + xi * yi : xr * yr - xi * yi);
      store(to + width, conjugate ? xi * yr - xr * yi : xi * yr + xr * yi);
    }
    // Sums of sums, which rounding changes less. For a number of run time there is one of all.
    constexpr int most = N ? N : 1;
    Vector whole[most], even[most] = {}, odd[most] = {};
    Vector *const rho = N ? even : reinterpret_cast<Vector *>(out);
    Vector *const second = N ? odd : rho;
    const int n = N ? N : ndensity;
    for (int p = 0; p < n; ++p) (N ? whole : rho)[p] = at(values, p);
    const auto close = [&] {
      if constexpr (N > 0)
        for (int p = 0; p < N; ++p) {
          whole[p] += even[p] + odd[p];
          even[p] = odd[p] = Vector{};
        }
    };
    const double *c = single_coefficients.get();
    for (std::size_t k = 0; k < single.size(); ++k, c += n) {
      add_density<N>(k % 2 ? second : rho, c, at(values, single[k]));
      if (k % 16 == 15) close();
    }
    close();
    for (const AceRun *run = runs.get(), *end = run + runs.size(); run < end; ++run) {
      const int *const factor = &y[run->first];
      c = &coefficients[static_cast<std::size_t>(run->first) * n];
      const First x(*run, values);
      int k = 0;
      for (; k + 1 < run->count; k += 2, c += 2 * n) {
        add_density<N>(rho, c, x.term(values, factor[k]));
        add_density<N>(second, c + n, x.term(values, factor[k + 1]));
        if (k % 16 == 14) close();
      }
      if (k < run->count) add_density<N>(rho, c, x.term(values, factor[k]));
      close();
    }
    if constexpr (N > 0)
      for (int p = 0; p < N; ++p) store(out + p * width, whole[p]);
  }

  template <int N>
  void pull_back(const double *values, const double *by_density, double *slopes) const
  {
    const int n = N ? N : ndensity;
    Vector by_rho_kept[N ? N : 1];
    const Vector *by_rho = reinterpret_cast<const Vector *>(by_density);
    if constexpr (N > 0) {
      for (int p = 0; p < N; ++p) by_rho_kept[p] = by_rho[p];
      by_rho = by_rho_kept;
    }
    for (std::ptrdiff_t k = 0; k < static_cast<std::ptrdiff_t>(nvalues) * width; k += width)
      store(slopes + k, Vector{});
    for (int p = 0; p < n; ++p) store(slopes + p * width, by_rho[p]);
    const double *c = single_coefficients.get();
    for (std::size_t k = 0; k < single.size(); ++k, c += n)
      add(slopes, single[k], weight<N>(by_rho, c));
    for (const AceRun *run = runs.get(), *end = run + runs.size(); run < end; ++run) {
      const int *const factor = &y[run->first];
      c = &coefficients[static_cast<std::size_t>(run->first) * n];
      const Vector xr = at(values, run->x);
      Vector by_xr{};
      if (run->kind == AceProductKind::real) {
        for (int k = 0; k < run->count; ++k, c += n) {
          const Vector w = weight<N>(by_rho, c);
          by_xr += w * at(values, factor[k]);
          add(slopes, factor[k], w * xr);
        }
        add(slopes, run->x, by_xr);
        continue;
      }
      const bool conjugate = run->kind == AceProductKind::conjugate;
      Vector xi = at(values, run->x + 1), by_xi{};
      if (!conjugate) xi = -xi;
      for (int k = 0; k < run->count; ++k, c += n) {
        const Vector w = weight<N>(by_rho, c);
        by_xr += w * at(values, factor[k]);
        by_xi += w * at(values, factor[k] + 1);
        add(slopes, factor[k], w * xr);
        add(slopes, factor[k] + 1, w * xi);
      }
      add(slopes, run->x, by_xr);
      add(slopes, run->x + 1, conjugate ? by_xi : -by_xi);
    }
    for (std::size_t k = products.size(); k-- > 0;) back_through(products[k], values, slopes);
  }

  static void back_through(const AceProduct &f, const double *values, double *slopes)
  {
    const Vector xr = at(values, f.x), yr = at(values, f.y), by_re = at(slopes, f.out);
    if (f.kind == AceProductKind::real) {
      add(slopes, f.x, by_re * yr);
      add(slopes, f.y, by_re * xr);
      return;
    }
    const Vector yi = at(values, f.y + 1), by_im = at(slopes, f.out + 1);
    if (f.kind == AceProductKind::mixed) {
      add(slopes, f.x, by_re * yr + by_im * yi);
      add(slopes, f.y, by_re * xr);
      add(slopes, f.y + 1, by_im * xr);
      return;
    }
    const Vector xi = at(values, f.x + 1);
    if (f.kind == AceProductKind::complex) {
      add(slopes, f.x, by_re * yr + by_im * yi);
      add(slopes, f.x + 1, by_im * yr - by_re * yi);
      add(slopes, f.y, by_re * xr + by_im * xi);
      add(slopes, f.y + 1, by_im * xr - by_re * xi);
    } else {
      add(slopes, f.x, by_re * yr - by_im * yi);
      add(slopes, f.x + 1, by_re * yi + by_im * yr);
      add(slopes, f.y, by_re * xr + by_im * xi);
      add(slopes, f.y + 1, by_re * xi - by_im * xr);
    }
  }

  Buffer<AceProduct> products;
  Buffer<int> single, y, first_function, functions;
  Buffer<double> single_coefficients, coefficients, gen_cgs;
  Buffer<AceRun> runs;
};

/// The largest of the absolute sums over v_f inverse[f,k].
/// @param v        [size] vectors
/// @param inverse  [size, size]
inline Vec<double> largest_projection(const double *v, int size, const double *inverse)
{
  constexpr int most = 8;    // sums at a time
  Vec<double> largest{};
  const auto sums = [&](int k, int count) {
    Vec<double> sum[most] = {};
    const double *row = inverse + k;
    for (int f = 0; f < size; ++f, row += size) {
      const Vec<double> value = load(v + static_cast<std::ptrdiff_t>(f) * width);
      for (int c = 0; c < count; ++c) sum[c] += row[c] * value;
    }
    for (int c = 0; c < count; ++c) {
      const Vec<double> distance = sum[c] < 0.0 ? -sum[c] : sum[c];
      largest = distance > largest ? distance : largest;
    }
  };
  int k = 0;
  for (; k + most <= size; k += most) sums(k, most);
  if (k < size) sums(k, size - k);
  return largest;
}

}    // namespace pwmlff::PWMLFF_ISA::ace
