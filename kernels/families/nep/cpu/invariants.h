// SPDX-License-Identifier: GPL-2.0-or-later

// From the real components of moments to descriptors and back, one function n per lane.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../series.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// Any address will do.
template <class T> inline Vec<T> load_anywhere(const T *p)
{
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
template <class T> inline void store_anywhere(T *p, Vec<T> v)
{
  __builtin_memcpy(p, &v, sizeof(v));
}

/// Numbers with their derivatives by one variable.
template <class T> struct Dual {
  Vec<T> value, rate;
};
template <class T> inline Dual<T> operator+(const Dual<T> &a, const Dual<T> &b)
{
  return {a.value + b.value, a.rate + b.rate};
}
template <class T> inline Dual<T> operator*(const Dual<T> &a, const Dual<T> &b)
{
  return {a.value * b.value, a.value * b.rate + a.rate * b.value};
}
template <class T> inline Dual<T> operator*(T a, const Dual<T> &b)
{
  return {a * b.value, a * b.rate};
}

template <class T, bool rates> struct Number {
  using Type = Vec<T>;
};
template <class T> struct Number<T, true> {
  using Type = Dual<T>;
};

/// Arrays of numbers with derivatives have these at a fixed distance behind the values.
template <class T> struct Access {
  std::ptrdiff_t behind;

  void get(const T *p, Vec<T> &v) const { v = load_anywhere<T>(p); }
  void get(const T *p, Dual<T> &v) const
  {
    v = {load_anywhere<T>(p), load_anywhere<T>(p + behind)};
  }
  void put(T *p, const Vec<T> &v) const { store_anywhere<T>(p, v); }
  void put(T *p, const Dual<T> &v) const
  {
    store_anywhere<T>(p, v.value);
    store_anywhere<T>(p + behind, v.rate);
  }
};

/// Descriptors of one center: blocks of `nfunctions` numbers, one after another. Whole vectors are
/// read and written, so that arrays need a vector more than they hold.
/// @tparam rates  whether numbers have a derivative
template <class T, bool rates = false> class Invariants {
  using N = typename Number<T, rates>::Type;

 public:
  /// @param a_behind, q_behind  distance of the derivatives in arrays of moments and descriptors
  explicit Invariants(const NepNetwork &network, std::ptrdiff_t a_behind = 0,
                      std::ptrdiff_t q_behind = 0) :
      nfunctions(network.nangular),
      padded(round_up(network.nangular, lanes<T>)),
      l_max(network.l_max),
      ndegrees(network.largest_degree()),
      of_a{a_behind},
      of_q{q_behind}
  {
    for (int kind = 0; kind < NEP_INVARIANTS; ++kind) {
      if (!network.invariant[kind]) continue;
      squared[nblocks] = kind == static_cast<int>(NepInvariant::q1111);
      if (!squared[nblocks]) {
        const std::vector<NepProduct> list = nep_products(static_cast<NepInvariant>(kind));
        count[nblocks] = static_cast<int>(list.size());
        products[nblocks].reserve(list.size());
        for (int k = 0; k < count[nblocks]; ++k)
          products[nblocks][k] = {list[k].i, list[k].j, list[k].k, static_cast<T>(list[k].factor)};
      }
      ++nblocks;
    }
  }

  /// @param a [(l, m), padded] moments
  /// @param q [blocks, nfunctions]
  void forward(const T *a, T *q) const
  {
    // In ascending order: a vector that reaches into the next block comes before it.
    for (int l = 1; l <= l_max; ++l, q += nfunctions)
      for (int n = 0; n < nfunctions; n += lanes<T>) of_q.put(q + n, square(a + n, l));
    for (int block = 0; block < nblocks; ++block, q += nfunctions)
      for (int n = 0; n < nfunctions; n += lanes<T>) {
        N sum{};
        if (squared[block]) {
          const N s = square(a + n, 1);
          sum = T(7.0 / 15.0) * s * s;
        }
        for (int k = 0; k < count[block]; ++k) {
          const Product &p = products[block][k];
          sum = sum + p.factor * moment(a + n, p.i) * moment(a + n, p.j) * moment(a + n, p.k);
        }
        of_q.put(q + n, sum);
      }
  }

  /// @param by_q [blocks, nfunctions] dE/dq
  /// @param by_a [(l, m), padded] dE/dA
  void backward(const T *a, const T *by_q, T *by_a) const
  {
    for (int n = 0; n < nfunctions;
         n += lanes<T>, a += lanes<T>, by_q += lanes<T>, by_a += lanes<T>) {
      const T *in = by_q;
      for (int l = 1; l <= ndegrees; ++l) {
        N s{};
        if (l <= l_max) {
          of_q.get(in, s);
          s = T(2) * s;
          in += nfunctions;
        }
        for (int k = l * l - 1; k < l * (l + 2); ++k) of_a.put(by_a + k * padded, s * moment(a, k));
      }
      for (int block = 0; block < nblocks; ++block, in += nfunctions) {
        N s;
        of_q.get(in, s);
        if (squared[block]) {
          const N factor = T(28.0 / 15.0) * s * square(a, 1);
          for (int k = 0; k < 3; ++k) add(by_a, k, factor * moment(a, k));
        }
        for (int k = 0; k < count[block]; ++k) {
          const Product &p = products[block][k];
          const N f = p.factor * s, x = moment(a, p.i), y = moment(a, p.j), z = moment(a, p.k);
          add(by_a, p.i, f * y * z);
          add(by_a, p.j, f * x * z);
          add(by_a, p.k, f * x * y);
        }
      }
    }
  }

  const int nfunctions, padded;

 private:
  struct Product {
    int i, j, k;
    T factor;
  };

  N moment(const T *a, int k) const
  {
    N result;
    of_a.get(a + k * padded, result);
    return result;
  }
  void add(T *by_a, int k, const N &v) const { of_a.put(by_a + k * padded, moment(by_a, k) + v); }
  N square(const T *a, int l) const
  {
    N sum{};
    for (int k = l * l - 1; k < l * (l + 2); ++k) sum = sum + moment(a, k) * moment(a, k);
    return sum;
  }

  const int l_max, ndegrees;
  const Access<T> of_a, of_q;
  int nblocks = 0;                      // of invariants beyond q_nl
  bool squared[NEP_INVARIANTS] = {};    // q_n(1111)
  int count[NEP_INVARIANTS] = {};       // of products
  Buffer<Product> products[NEP_INVARIANTS];
};

}    // namespace pwmlff::PWMLFF_ISA::nep
