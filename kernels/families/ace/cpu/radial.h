// SPDX-License-Identifier: GPL-2.0-or-later

// Radial functions and moments of as many edges as a vector has lanes, each of another center.

#pragma once

#include "../../../core/cpu/simd.h"

#include <utility>

namespace pwmlff::PWMLFF_ISA::ace {

/// A vector of twice the width.
template <class Vector> inline auto join(Vector a, Vector b)
{
  typedef std::remove_cvref_t<decltype(a[0])> T;
  typedef T Result __attribute__((vector_size(2 * sizeof(Vector)), may_alias));
#if __has_builtin(__builtin_shufflevector)
  return [&]<int... l>(std::integer_sequence<int, l...>) -> Result {
    return __builtin_shufflevector(a, b, l...);
  }(std::make_integer_sequence<int, 2 * sizeof(Vector) / sizeof(T)>{});
#else
  Result result;
  __builtin_memcpy(&result, &a, sizeof(a));
  __builtin_memcpy(reinterpret_cast<char *>(&result) + sizeof(a), &b, sizeof(b));
  return result;
#endif
}

/// Four numbers of each lane, at addresses that are multiples of their size, as one vector each.
template <class T>
inline void load_four(const T *const *at, std::ptrdiff_t offset, Vec<T> &a, Vec<T> &b, Vec<T> &c,
                      Vec<T> &d)
{
  constexpr int n = lanes<T>;
  if constexpr (n == 2) {
    const Vec<T> p0 = load(at[0] + offset), p1 = load(at[1] + offset);
    const Vec<T> q0 = load(at[0] + offset + 2), q1 = load(at[1] + offset + 2);
    a = shuffle<0, 2>(p0, p1), b = shuffle<1, 3>(p0, p1);
    c = shuffle<0, 2>(q0, q1), d = shuffle<1, 3>(q0, q1);
  } else {
    // Vector k has the four numbers of lanes k, k + 4, ..; then each four lanes are transposed.
    typedef T Four __attribute__((vector_size(4 * sizeof(T)), may_alias));
    const auto four = [&](int l) { return *reinterpret_cast<const Four *>(at[l] + offset); };
    Vec<T> row[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      if constexpr (n == 4) row[k] = four(k);
      else if constexpr (n == 8) row[k] = join(four(k), four(k + 4));
      else row[k] = join(join(four(k), four(k + 4)), join(four(k + 8), four(k + 12)));
    }
    [&]<int... l>(std::integer_sequence<int, l...>) {
      const Vec<T> even01 = shuffle<(l % 2 ? n + l - 1 : l)...>(row[0], row[1]);
      const Vec<T> odd01 = shuffle<(l % 2 ? n + l : l + 1)...>(row[0], row[1]);
      const Vec<T> even23 = shuffle<(l % 2 ? n + l - 1 : l)...>(row[2], row[3]);
      const Vec<T> odd23 = shuffle<(l % 2 ? n + l : l + 1)...>(row[2], row[3]);
      a = shuffle<(l % 4 < 2 ? l : n + l - 2)...>(even01, even23);
      b = shuffle<(l % 4 < 2 ? l : n + l - 2)...>(odd01, odd23);
      c = shuffle<(l % 4 < 2 ? l + 2 : n + l)...>(even01, even23);
      d = shuffle<(l % 4 < 2 ? l + 2 : n + l)...>(odd01, odd23);
    }(std::make_integer_sequence<int, n>{});
  }
}

/// `N` radial functions from first on, values and slopes side by side: sums over the radial base.
/// @param base [nbase, 2] vectors
/// @param crad [nbase, stride]
/// @param out  [N, 2] vectors
template <class T, int N>
inline void contract_some(const T *base, int nbase, const T *crad, int stride, T *out)
{
  Vec<T> value[N] = {}, slope[N] = {};
  for (int k = 0; k < nbase; ++k, crad += stride, base += 2 * lanes<T>) {
    const Vec<T> g = load(base), dg = load(base + lanes<T>);
#pragma GCC unroll 16
    for (int f = 0; f < N; ++f) {
      value[f] += crad[f] * g;
      slope[f] += crad[f] * dg;
    }
  }
#pragma GCC unroll 16
  for (int f = 0; f < N; ++f) {
    store(out + 2 * f * lanes<T>, value[f]);
    store(out + (2 * f + 1) * lanes<T>, slope[f]);
  }
}

/// All of them; the last tile has some of the one before it again.
template <class T>
inline void contract(const T *base, int nbase, const T *crad, int nfunctions, T *out)
{
  constexpr int N = PWMLFF_REGISTERS == 32 ? 12 : 6;
  if (nfunctions < N) {
    for (int f = 0; f < nfunctions; ++f)
      contract_some<T, 1>(base, nbase, crad + f, nfunctions, out + 2 * f * lanes<T>);
    return;
  }
  for (int f = 0; f < nfunctions; f += N) {
    const int first = f + N > nfunctions ? nfunctions - N : f;
    contract_some<T, N>(base, nbase, crad + first, nfunctions, out + 2 * first * lanes<T>);
  }
}

/// Moments of one degree: add values times harmonics of `J` edges to sums.
/// @param value     [J] pointers to [nfunctions, 2] vectors
/// @param harmonics [J] pointers to those of the degree, [2 degree + 1] vectors
/// @param add       (k, vector): to component k of the moments of the group
template <class T, int degree, int J, class Add>
inline void add_moments(int nfunctions, const T *const *value, const T *const *harmonics,
                        const Add &add)
{
  constexpr int size = 2 * degree + 1, n = lanes<T>;
  for (int f = 0; f < nfunctions; ++f) {
    Vec<T> r[J];
    for (int j = 0; j < J; ++j) r[j] = load(value[j] + 2 * f * n);
#pragma GCC unroll 17
    for (int m = 0; m < size; ++m) {
      Vec<T> sum = degree == 0 ? r[0] : r[0] * load(harmonics[0] + m * n);
      for (int j = 1; j < J; ++j) sum += degree == 0 ? r[j] : r[j] * load(harmonics[j] + m * n);
      add(f * size + m, sum);
    }
  }
}

/// From slopes by the moments of one degree to those by an edge.
/// @param slopes     [nfunctions, 2 degree + 1] vectors
/// @param by_harmonic [2 degree + 1] vectors, out: dE by the harmonics
/// @return the part of dE/dr
template <class T, int degree>
inline Vec<T> back_to_edge(int nfunctions, const T *slopes, const T *value, const T *harmonics,
                           T *by_harmonic)
{
  constexpr int size = 2 * degree + 1, n = lanes<T>;
  Vec<T> by_r{};
  if constexpr (degree == 0) {
    for (int f = 0; f < nfunctions; ++f)
      by_r += load(slopes + f * n) * load(value + (2 * f + 1) * n);
  } else {
    // As many components at a time as there are registers for their sums.
    constexpr int most = PWMLFF_REGISTERS == 32 ? 17 : 7;
    const auto some = [&]<int first, int count>() {
      Vec<T> sums[count] = {};
      for (int f = 0; f < nfunctions; ++f) {
        const Vec<T> r = load(value + 2 * f * n);
        Vec<T> by_value{};
#pragma GCC unroll 17
        for (int m = 0; m < count; ++m) {
          const Vec<T> slope = load(slopes + (f * size + first + m) * n);
          by_value += slope * load(harmonics + (first + m) * n);
          sums[m] += slope * r;
        }
        by_r += by_value * load(value + (2 * f + 1) * n);
      }
#pragma GCC unroll 17
      for (int m = 0; m < count; ++m) store(by_harmonic + (first + m) * n, sums[m]);
    };
    some.template operator()<0, (size < most ? size : most)>();
    if constexpr (size > most)
      some.template operator()<most, (size - most < most ? size - most : most)>();
    if constexpr (size > 2 * most) some.template operator()<2 * most, size - 2 * most>();
  }
  return by_r;
}

/// Calls work.operator()<degree>() for a degree that is known at run time.
template <class Work> inline void with_degree(int degree, const Work &work)
{
  switch (degree) {
    case 0:
      return work.template operator()<0>();
    case 1:
      return work.template operator()<1>();
    case 2:
      return work.template operator()<2>();
    case 3:
      return work.template operator()<3>();
    case 4:
      return work.template operator()<4>();
    case 5:
      return work.template operator()<5>();
    case 6:
      return work.template operator()<6>();
    case 7:
      return work.template operator()<7>();
    default:
      return work.template operator()<8>();
  }
}

}    // namespace pwmlff::PWMLFF_ISA::ace
