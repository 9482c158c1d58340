// SPDX-License-Identifier: GPL-2.0-or-later

// From the real components of moments to descriptors and back, one function n per lane.

#pragma once

#include "../../cpu/simd.h"
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

/// Descriptors of one center: blocks of `nfunctions` numbers, one after another. Whole vectors are
/// read and written, so that arrays need a vector more than they hold.
template <class T> class Invariants {
 public:
  explicit Invariants(const NepNetwork &network) :
      nfunctions(network.nangular),
      padded(round_up(network.nangular, lanes<T>)),
      l_max(network.l_max),
      ndegrees(network.largest_degree())
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
      for (int n = 0; n < nfunctions; n += lanes<T>) store_anywhere<T>(q + n, square(a + n, l));
    for (int block = 0; block < nblocks; ++block, q += nfunctions)
      for (int n = 0; n < nfunctions; n += lanes<T>) {
        Vec<T> sum{};
        if (squared[block]) {
          const Vec<T> s = square(a + n, 1);
          sum = T(7.0 / 15.0) * s * s;
        }
        for (int k = 0; k < count[block]; ++k) {
          const Product &p = products[block][k];
          sum += p.factor * moment(a + n, p.i) * moment(a + n, p.j) * moment(a + n, p.k);
        }
        store_anywhere<T>(q + n, sum);
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
        const Vec<T> s = l <= l_max ? T(2) * load_anywhere<T>(in) : Vec<T>{};
        if (l <= l_max) in += nfunctions;
        for (int k = l * l - 1; k < l * (l + 2); ++k) store(by_a + k * padded, s * moment(a, k));
      }
      for (int block = 0; block < nblocks; ++block, in += nfunctions) {
        const Vec<T> s = load_anywhere<T>(in);
        if (squared[block]) {
          const Vec<T> factor = T(28.0 / 15.0) * s * square(a, 1);
          for (int k = 0; k < 3; ++k) add(by_a, k, factor * moment(a, k));
        }
        for (int k = 0; k < count[block]; ++k) {
          const Product &p = products[block][k];
          const Vec<T> f = p.factor * s, x = moment(a, p.i), y = moment(a, p.j), z = moment(a, p.k);
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

  Vec<T> moment(const T *a, int k) const { return load(a + k * padded); }
  void add(T *by_a, int k, Vec<T> v) const
  {
    store(by_a + k * padded, load(by_a + k * padded) + v);
  }
  Vec<T> square(const T *a, int l) const
  {
    Vec<T> sum{};
    for (int k = l * l - 1; k < l * (l + 2); ++k) sum += moment(a, k) * moment(a, k);
    return sum;
  }

  const int l_max, ndegrees;
  int nblocks = 0;                      // of invariants beyond q_nl
  bool squared[NEP_INVARIANTS] = {};    // q_n(1111)
  int count[NEP_INVARIANTS] = {};       // of products
  Buffer<Product> products[NEP_INVARIANTS];
};

}    // namespace pwmlff::PWMLFF_ISA::nep
