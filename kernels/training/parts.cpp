// SPDX-License-Identifier: GPL-2.0-or-later

// Compiled once per instruction set; see parts.h and core/cpu/simd.h.

#include "parts.h"

#include "../core/cpu/simd.h"
#include "../families/dp/cpu/layers.h"
#include "../families/dp/pair_terms.h"

namespace pwmlff::PWMLFF_ISA {
namespace {

/// Four neighboring numbers, at any address.
template <class T> struct Quad;
template <> struct Quad<double> {
  typedef double Type __attribute__((vector_size(32), aligned(8), may_alias));
};
template <> struct Quad<float> {
  typedef float Type __attribute__((vector_size(16), aligned(4), may_alias));
};
template <class T> using Quad4 = typename Quad<T>::Type;

template <class T> Quad4<T> load4(const T *p) { return *reinterpret_cast<const Quad4<T> *>(p); }
template <class T> void add4(T *p, Quad4<T> v)
{
  Quad4<T> *const q = reinterpret_cast<Quad4<T> *>(p);
  *q = *q + v;
}
template <class T> T sum4(Quad4<T> v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/// Values of the four cubic B-splines that are not zero at place u of an interval, 0 <= u <= 1.
template <class T> Quad4<T> basis(T u)
{
  const Quad4<T> a0{T(1.0 / 6), T(4.0 / 6), T(1.0 / 6), T(0)}, a1{T(-0.5), T(0), T(0.5), T(0)},
      a2{T(0.5), T(-1), T(0.5), T(0)}, a3{T(-1.0 / 6), T(0.5), T(-0.5), T(1.0 / 6)};
  return ((a3 * u + a2) * u + a1) * u + a0;
}

/// Their derivatives by u.
template <class T> Quad4<T> basis_slope(T u)
{
  const Quad4<T> a1{T(-0.5), T(0), T(0.5), T(0)}, a2{T(1), T(-2), T(1), T(0)},
      a3{T(-0.5), T(1.5), T(-1.5), T(0.5)};
  return (a3 * u + a2) * u + a1;
}

template <class T>
void environment(const double *rij, int n, const TrainingPair &pair, TrainingScratch<T> &scratch)
{
  const T rmin = static_cast<T>(pair.rmin),
          inverse_range = static_cast<T>(1.0 / (pair.rmax - pair.rmin));
  const T low = static_cast<T>(pair.low), inverse_spacing = static_cast<T>(1.0 / pair.spacing);
  const int last = pair.intervals - 1;
  T mean[4], inverse_dev[4];
  for (int c = 0; c < 4; ++c) {
    mean[c] = static_cast<T>(pair.mean[c]);
    inverse_dev[c] = static_cast<T>(pair.inverse_dev[c]);
  }
  T *const inverse_r = scratch.inverse_r, *const s = scratch.s, *const slope = scratch.slope,
           *const place = scratch.place;
  T *const r0 = scratch.r0, *const r1 = scratch.r1, *const r2 = scratch.r2, *const r3 = scratch.r3;
  std::int32_t *const interval = scratch.interval;
#pragma GCC ivdep
  for (int e = 0; e < n; ++e) {
    const T x = static_cast<T>(rij[3 * e]), y = static_cast<T>(rij[3 * e + 1]),
            z = static_cast<T>(rij[3 * e + 2]);
    const T square = x * x + y * y + z * z;
    const T length = sizeof(T) == 4 ? static_cast<T>(__builtin_sqrtf(static_cast<float>(square)))
                                    : static_cast<T>(__builtin_sqrt(static_cast<double>(square)));
    const T inverse = T(1) / length;
    T u = switch_place(length, rmin, inverse_range);
    u = u > T(1) ? T(1) : u;
    const SwitchedInverse switched(u, inverse, inverse_range);
    inverse_r[e] = inverse;
    s[e] = switched.s;
    slope[e] = switched.s1;
    const T t = (length - low) * inverse_spacing;
    std::int32_t k = static_cast<std::int32_t>(t);
    k = k < 0 ? 0 : k;
    k = k > last ? last : k;
    interval[e] = k;
    place[e] = t - static_cast<T>(k);
    const T angular = switched.s * inverse;
    r0[e] = (switched.s - mean[0]) * inverse_dev[0];
    r1[e] = (angular * x - mean[1]) * inverse_dev[1];
    r2[e] = (angular * y - mean[2]) * inverse_dev[2];
    r3[e] = (angular * z - mean[3]) * inverse_dev[3];
  }
}

template <class T> class Parts final : public TrainingParts<T> {
 public:
  void moments(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef, int max_neighbor,
               TrainingScratch<T> &scratch, T *const *c) const override
  {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(frame.nspecies) * ncoef;
    std::ptrdiff_t edge = 0;
    for (int i = 0; i < frame.natoms; ++i) {
      const int a = frame.species[i];
      const std::ptrdiff_t component = frame.width[a] * row;
      T *const own = c[a] + frame.column[i] * row;
      for (int b = 0; b < frame.nspecies; ++b) {
        const TrainingPair &pair = pairs[a * frame.nspecies + b];
        const int n = frame.count[i * frame.nspecies + b];
        environment(frame.rij + 3 * edge, n, pair, scratch);
        edge += n;
        T *const base = own + static_cast<std::ptrdiff_t>(b) * ncoef;
        for (int e = 0; e < n; ++e) {
          const Quad4<T> w = basis(scratch.place[e]);
          T *const p = base + scratch.interval[e];
          add4(p, scratch.r0[e] * w);
          add4(p + component, scratch.r1[e] * w);
          add4(p + 2 * component, scratch.r2[e] * w);
          add4(p + 3 * component, scratch.r3[e] * w);
        }
        const Quad4<T> w = basis(T(1)) * static_cast<T>(max_neighbor - n);
        for (int q = 0; q < 4; ++q)
          add4(base + q * component + pair.intervals - 1,
               static_cast<T>(-pair.mean[q] * pair.inverse_dev[q]) * w);
      }
    }
  }

  void forces(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef,
              TrainingScratch<T> &scratch, const T *const *g, double *force,
              double *virial) const override
  {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(frame.nspecies) * ncoef;
    std::ptrdiff_t edge = 0;
    double vir[9] = {};
    for (int i = 0; i < frame.natoms; ++i) {
      const int a = frame.species[i];
      const std::ptrdiff_t component = frame.width[a] * row;
      const T *const own = g[a] + frame.column[i] * row;
      double fi[3] = {};
      for (int b = 0; b < frame.nspecies; ++b) {
        const TrainingPair &pair = pairs[a * frame.nspecies + b];
        const int n = frame.count[i * frame.nspecies + b];
        const double *const rij = frame.rij + 3 * edge;
        const std::int32_t *const neighbor = frame.j + edge;
        environment(rij, n, pair, scratch);
        edge += n;
        const T *const base = own + static_cast<std::ptrdiff_t>(b) * ncoef;
        const T inverse_spacing = static_cast<T>(1.0 / pair.spacing);
        for (int e = 0; e < n; ++e) {
          const Quad4<T> w = basis(scratch.place[e]), dw = basis_slope(scratch.place[e]);
          const T *const p = base + scratch.interval[e];
          const Quad4<T> c0 = load4(p), c1 = load4(p + component), c2 = load4(p + 2 * component),
                         c3 = load4(p + 3 * component);
          scratch.t0[e] = sum4<T>(c0 * w);
          scratch.t1[e] = sum4<T>(c1 * w);
          scratch.t2[e] = sum4<T>(c2 * w);
          scratch.t3[e] = sum4<T>(c3 * w);
          scratch.radial[e] = inverse_spacing * sum4<T>((scratch.r0[e] * c0 + scratch.r1[e] * c1 +
                                                         scratch.r2[e] * c2 + scratch.r3[e] * c3) *
                                                        dw);
        }
        const T dev0 = static_cast<T>(pair.inverse_dev[0]),
                dev1 = static_cast<T>(pair.inverse_dev[1]),
                dev2 = static_cast<T>(pair.inverse_dev[2]),
                dev3 = static_cast<T>(pair.inverse_dev[3]);
#pragma GCC ivdep
        for (int e = 0; e < n; ++e) {
          const T inverse = scratch.inverse_r[e], q = scratch.s[e] * inverse,
                  slope = scratch.slope[e];
          const T a[3] = {scratch.t1[e] * dev1, scratch.t2[e] * dev2, scratch.t3[e] * dev3};
          const T d[3] = {static_cast<T>(rij[3 * e]), static_cast<T>(rij[3 * e + 1]),
                          static_cast<T>(rij[3 * e + 2])};
          T gradient[3];
          edge_gradient(scratch.radial[e] + scratch.t0[e] * dev0 * slope, a, d, inverse, q,
                        (slope - q) * inverse * inverse, gradient);
          scratch.g0[e] = static_cast<double>(gradient[0]);
          scratch.g1[e] = static_cast<double>(gradient[1]);
          scratch.g2[e] = static_cast<double>(gradient[2]);
        }
        for (int e = 0; e < n; ++e) {
          const double gx = scratch.g0[e], gy = scratch.g1[e], gz = scratch.g2[e];
          const double x = rij[3 * e], y = rij[3 * e + 1], z = rij[3 * e + 2];
          double *const fj = force + 3 * static_cast<std::ptrdiff_t>(neighbor[e]);
          fi[0] += gx, fi[1] += gy, fi[2] += gz;
          fj[0] -= gx, fj[1] -= gy, fj[2] -= gz;
          vir[0] -= x * gx, vir[1] -= x * gy, vir[2] -= x * gz;
          vir[3] -= y * gx, vir[4] -= y * gy, vir[5] -= y * gz;
          vir[6] -= z * gx, vir[7] -= z * gy, vir[8] -= z * gz;
        }
      }
      for (int d = 0; d < 3; ++d) force[3 * static_cast<std::ptrdiff_t>(i) + d] += fi[d];
    }
    for (int d = 0; d < 9; ++d) virial[d] += vir[d];
  }

  void tangents(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef,
                TrainingScratch<T> &scratch, const double *v, const double *w,
                T *const *c) const override
  {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(frame.nspecies) * ncoef;
    std::ptrdiff_t edge = 0;
    for (int i = 0; i < frame.natoms; ++i) {
      const int a = frame.species[i];
      const std::ptrdiff_t component = frame.width[a] * row;
      T *const own = c[a] + frame.column[i] * row;
      const double *const vi = v + 3 * static_cast<std::ptrdiff_t>(i);
      for (int b = 0; b < frame.nspecies; ++b) {
        const TrainingPair &pair = pairs[a * frame.nspecies + b];
        const int n = frame.count[i * frame.nspecies + b];
        const double *const rij = frame.rij + 3 * edge;
        const std::int32_t *const neighbor = frame.j + edge;
        environment(rij, n, pair, scratch);
        edge += n;
        const T dev0 = static_cast<T>(pair.inverse_dev[0]),
                dev1 = static_cast<T>(pair.inverse_dev[1]),
                dev2 = static_cast<T>(pair.inverse_dev[2]),
                dev3 = static_cast<T>(pair.inverse_dev[3]);
        const T inverse_spacing = static_cast<T>(1.0 / pair.spacing);
#pragma GCC ivdep
        for (int e = 0; e < n; ++e) {
          const double *const vj = v + 3 * static_cast<std::ptrdiff_t>(neighbor[e]);
          const double x = rij[3 * e], y = rij[3 * e + 1], z = rij[3 * e + 2];
          const T ux = static_cast<T>(vi[0] - vj[0] - (x * w[0] + y * w[3] + z * w[6]));
          const T uy = static_cast<T>(vi[1] - vj[1] - (x * w[1] + y * w[4] + z * w[7]));
          const T uz = static_cast<T>(vi[2] - vj[2] - (x * w[2] + y * w[5] + z * w[8]));
          const T inverse = scratch.inverse_r[e], q = scratch.s[e] * inverse;
          const T nx = static_cast<T>(x) * inverse, ny = static_cast<T>(y) * inverse,
                  nz = static_cast<T>(z) * inverse;
          const T speed = nx * ux + ny * uy + nz * uz;    // of the distance
          const T common = (scratch.slope[e] - q) * speed;
          scratch.t0[e] = dev0 * scratch.slope[e] * speed;
          scratch.t1[e] = dev1 * (q * ux + common * nx);
          scratch.t2[e] = dev2 * (q * uy + common * ny);
          scratch.t3[e] = dev3 * (q * uz + common * nz);
          scratch.radial[e] = speed * inverse_spacing;
        }
        T *const base = own + static_cast<std::ptrdiff_t>(b) * ncoef;
        for (int e = 0; e < n; ++e) {
          const Quad4<T> value = basis(scratch.place[e]),
                         change = basis_slope(scratch.place[e]) * scratch.radial[e];
          T *const p = base + scratch.interval[e];
          add4(p, scratch.t0[e] * value + scratch.r0[e] * change);
          add4(p + component, scratch.t1[e] * value + scratch.r1[e] * change);
          add4(p + 2 * component, scratch.t2[e] * value + scratch.r2[e] * change);
          add4(p + 3 * component, scratch.t3[e] * value + scratch.r3[e] * change);
        }
      }
    }
  }

  void activate(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *x, const T *step,
                bool residual, T *z, T *h) const override
  {
    pwmlff::PWMLFF_ISA::activate(rows, n, stride, x, step, residual, z, h, z);
  }

  void back(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *step, const T *h,
            const T *dy, T *dz) const override
  {
    activate_backward(rows, n, stride, step, h, dy, dz);
  }

  void change(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *x, const T *step,
              bool residual, const T *h, const T *z, T *y) const override
  {
    for (int r = 0; r < rows; ++r, h += n, x += stride, z += stride, y += stride) {
      const T factor = step ? step[r] : T(1);
      for (std::ptrdiff_t k = 0; k < n; k += lanes<T>) {
        const Vec<T> dx = residual ? load(x + k) : Vec<T>{};
        store(y + k, hidden_tangent(residual, factor, load(h + k), dx, load(z + k)));
      }
    }
  }

  void back_twice(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *step, const T *h,
                  const T *dy, const T *dy_change, T *z, T *bias, T *steps) const override
  {
    for (int r = 0; r < rows; ++r, h += n, dy += n, dy_change += n, z += stride) {
      const T factor = step ? step[r] : T(1);
      Vec<T> sum{}, step_sum{};
      for (std::ptrdiff_t k = 0; k < n; k += lanes<T>) {
        const Vec<T> value = load(h + k), slope = T(1) - value * value, dz = load(z + k);
        const Vec<T> to_h = load(dy + k), to_change = load(dy_change + k) * dz;
        const Vec<T> z_adjoint = factor * slope * (to_h - T(2) * value * to_change);
        step_sum += value * to_h + slope * to_change;
        sum += z_adjoint;
        store(z + k, z_adjoint);
      }
      bias[r] = pwmlff::PWMLFF_ISA::sum<T>(sum);
      if (steps) steps[r] = pwmlff::PWMLFF_ISA::sum<T>(step_sum);
    }
  }

  void describe(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride, const T *t,
                std::ptrdiff_t dstride, T *d) const override
  {
    for (std::ptrdiff_t column = 0; column < n; column += lanes<T>)
      pwmlff::PWMLFF_ISA::describe<T, 1>(width, m2, {t + column, stride, n}, dstride, d + column);
  }

  void describe_tangent(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride, const T *t,
                        const T *tangent, std::ptrdiff_t dstride, T *d) const override
  {
    for (std::ptrdiff_t column = 0; column < n; column += lanes<T>) {
      T *p = d + column;
      for (int k = 0; k < m2; ++k) {
        Vec<T> axis[4], change[4];
        for (int c = 0; c < 4; ++c) {
          axis[c] = load(t + k * stride + c * n + column);
          change[c] = load(tangent + k * stride + c * n + column);
        }
        for (int m = k; m < width; ++m, p += dstride) {
          Vec<T> sum{};
          for (int c = 0; c < 4; ++c)
            sum += axis[c] * load(tangent + m * stride + c * n + column) +
                   change[c] * load(t + m * stride + c * n + column);
          store(p, sum);
        }
      }
    }
  }

  void describe_backward(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride, const T *t,
                         std::ptrdiff_t dstride, const T *d, T *out) const override
  {
    for (std::ptrdiff_t column = 0; column < n; column += lanes<T>)
      pwmlff::PWMLFF_ISA::describe_backward<T, 1>(width, m2, {t + column, stride, n}, dstride,
                                                  d + column, {out + column, stride, n});
  }
};

}    // namespace

template <class T> const TrainingParts<T> &training_parts()
{
  static const Parts<T> parts;
  return parts;
}

template const TrainingParts<float> &training_parts();
template const TrainingParts<double> &training_parts();

}    // namespace pwmlff::PWMLFF_ISA
