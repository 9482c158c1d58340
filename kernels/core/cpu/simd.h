// SPDX-License-Identifier: GPL-2.0-or-later

// Vectors of a width known at compile time, for code that is compiled once per instruction set.
//
// The build defines for each of them
//   PWMLFF_ISA            namespace of all such code
//   PWMLFF_VECTOR_BYTES   16, 32 or 64
//   PWMLFF_REGISTERS      number of vector registers
// Only language extensions that GCC and Clang share are used, no intrinsics. Nothing in these files
// may leave an inline function of the standard library behind: the linker keeps one copy of it, and
// that could be the one with instructions that another processor lacks.
//
// Not Highway: a library that every build would need, for what is this one header; and its vectors
// may not stand in arrays, in which the register-blocked products keep their sums (matrix.h).

#pragma once

#include "../buffer.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

namespace pwmlff::PWMLFF_ISA {

typedef double DoubleVector __attribute__((vector_size(PWMLFF_VECTOR_BYTES), may_alias));
typedef float FloatVector __attribute__((vector_size(PWMLFF_VECTOR_BYTES), may_alias));
typedef std::int64_t LongVector __attribute__((vector_size(PWMLFF_VECTOR_BYTES), may_alias));
typedef std::int32_t IntVector __attribute__((vector_size(PWMLFF_VECTOR_BYTES), may_alias));

template <class T> struct Simd;
template <> struct Simd<double> {
  using Vector = DoubleVector;
  using Bits = LongVector;
  using Int = std::int64_t;
};
template <> struct Simd<float> {
  using Vector = FloatVector;
  using Bits = IntVector;
  using Int = std::int32_t;
};

template <class T> using Vec = typename Simd<T>::Vector;
template <class T> inline constexpr int lanes = PWMLFF_VECTOR_BYTES / sizeof(T);

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// Addresses are multiples of the vector size unless the name says otherwise. They lie within what
// was reserved. NOLINTBEGIN(clang-analyzer-security.ArrayBound)
template <class T> inline Vec<T> load(const T *p) { return *reinterpret_cast<const Vec<T> *>(p); }
template <class T> inline void store(T *p, Vec<T> v) { *reinterpret_cast<Vec<T> *>(p) = v; }
// NOLINTEND(clang-analyzer-security.ArrayBound)
template <class T> inline Vec<T> broadcast(T x) { return Vec<T>{} + x; }

/// One element per lane, element(l) for lane l.
template <class T, class Element> inline Vec<T> gather(const Element &element)
{
  alignas(PWMLFF_VECTOR_BYTES) T values[lanes<T>];
  for (int l = 0; l < lanes<T>; ++l) values[l] = element(l);
  return load(values);
}

inline DoubleVector sqrt(DoubleVector x)
{
  return gather<double>([&](int l) { return __builtin_sqrt(x[l]); });
}

template <class T> inline T sum(Vec<T> x)
{
  T s = 0;
  for (int l = 0; l < lanes<T>; ++l) s += x[l];
  return s;
}

/// Lanes of a and b, counted through both.
template <int... lane, class Vector> inline auto shuffle(Vector a, Vector b)
{
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, lane...);
#else    // GCC 11, which knows results of the same width alone
  using T = std::remove_cvref_t<decltype(a[0])>;
  typedef typename Simd<T>::Int Mask __attribute__((vector_size(sizeof(Vector))));
  typedef T Result __attribute__((vector_size(sizeof...(lane) * sizeof(T)), may_alias));
  const Vector all = __builtin_shuffle(a, b, Mask{lane...});
  Result result;
  __builtin_memcpy(&result, &all, sizeof(result));
  return result;
#endif
}

/// Have a vector in a register: a compiler may otherwise read it from memory once per use.
template <class T> inline void keep(Vec<T> &v)
{
#if defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

/// Sums over the lanes of four vectors, in the order a, b, c, d.
template <class T> inline void sum4(Vec<T> a, Vec<T> b, Vec<T> c, Vec<T> d, T *out)
{
  constexpr int n = lanes<T>;
  if constexpr (n == 2) {
    store<T>(out, shuffle<0, 2>(a, b) + shuffle<1, 3>(a, b));
    store<T>(out + 2, shuffle<0, 2>(c, d) + shuffle<1, 3>(c, d));
  } else {
    typedef T Quad __attribute__((vector_size(4 * sizeof(T)), may_alias));
    Quad q[4];
    if constexpr (n == 4) {
      q[0] = a, q[1] = b, q[2] = c, q[3] = d;
    } else if constexpr (n == 8) {
      const auto fold = [](Vec<T> x) {
        return shuffle<0, 1, 2, 3>(x, x) + shuffle<4, 5, 6, 7>(x, x);
      };
      q[0] = fold(a), q[1] = fold(b), q[2] = fold(c), q[3] = fold(d);
    } else {
      const auto fold = [](Vec<T> x) {
        const auto half =
            shuffle<0, 1, 2, 3, 4, 5, 6, 7>(x, x) + shuffle<8, 9, 10, 11, 12, 13, 14, 15>(x, x);
        return shuffle<0, 1, 2, 3>(half, half) + shuffle<4, 5, 6, 7>(half, half);
      };
      q[0] = fold(a), q[1] = fold(b), q[2] = fold(c), q[3] = fold(d);
    }
    const Quad ab =
        shuffle<0, 4, 2, 6>(q[0], q[1]) + shuffle<1, 5, 3, 7>(q[0], q[1]);    // a01 b01 a23 b23
    const Quad cd = shuffle<0, 4, 2, 6>(q[2], q[3]) + shuffle<1, 5, 3, 7>(q[2], q[3]);
    *reinterpret_cast<Quad *>(out) = shuffle<0, 1, 4, 5>(ab, cd) + shuffle<2, 3, 6, 7>(ab, cd);
  }
}

/// n structures of four numbers, from memory to one vector per member (n = number of lanes).
template <class T> inline void load4(const T *p, Vec<T> &a, Vec<T> &b, Vec<T> &c, Vec<T> &d)
{
  if constexpr (lanes<T> == 4) {
    const Vec<T> p0 = load(p), p1 = load(p + 4), p2 = load(p + 8), p3 = load(p + 12);
    const Vec<T> s0 = shuffle<0, 4, 2, 6>(p0, p1);
    const Vec<T> s1 = shuffle<1, 5, 3, 7>(p0, p1);
    const Vec<T> s2 = shuffle<0, 4, 2, 6>(p2, p3);
    const Vec<T> s3 = shuffle<1, 5, 3, 7>(p2, p3);
    a = shuffle<0, 1, 4, 5>(s0, s2);
    b = shuffle<0, 1, 4, 5>(s1, s3);
    c = shuffle<2, 3, 6, 7>(s0, s2);
    d = shuffle<2, 3, 6, 7>(s1, s3);
  } else {
    a = gather<T>([&](int l) { return p[4 * l]; });
    b = gather<T>([&](int l) { return p[4 * l + 1]; });
    c = gather<T>([&](int l) { return p[4 * l + 2]; });
    d = gather<T>([&](int l) { return p[4 * l + 3]; });
  }
}

/// Add one structure of four numbers per lane to the rows [.., 4] that an index [lanes] tells.
template <class T>
inline void add4(T *rows, const int *index, Vec<T> a, Vec<T> b, Vec<T> c, Vec<T> d)
{
  const auto row = [&](int l) { return rows + 4 * static_cast<std::ptrdiff_t>(index[l]); };
  if constexpr (lanes<T> == 2) {
    for (int l = 0; l < 2; ++l) {
      store(row(l), load(row(l)) + Vec<T>{a[l], b[l]});
      store(row(l) + 2, load(row(l) + 2) + Vec<T>{c[l], d[l]});
    }
  } else {
    typedef T Four __attribute__((vector_size(4 * sizeof(T))));
    const auto add = [&](int l, Four four) {
      Four sum;
      __builtin_memcpy(&sum, row(l), sizeof(sum));
      sum += four;
      __builtin_memcpy(row(l), &sum, sizeof(sum));
    };
    if constexpr (lanes<T> == 4) {
      const Vec<T> ab0 = shuffle<0, 4, 2, 6>(a, b), ab1 = shuffle<1, 5, 3, 7>(a, b);
      const Vec<T> cd0 = shuffle<0, 4, 2, 6>(c, d), cd1 = shuffle<1, 5, 3, 7>(c, d);
      add(0, shuffle<0, 1, 4, 5>(ab0, cd0));
      add(1, shuffle<0, 1, 4, 5>(ab1, cd1));
      add(2, shuffle<2, 3, 6, 7>(ab0, cd0));
      add(3, shuffle<2, 3, 6, 7>(ab1, cd1));
    } else {
      const Vec<T> ab0 = shuffle<0, 8, 2, 10, 4, 12, 6, 14>(a, b);
      const Vec<T> ab1 = shuffle<1, 9, 3, 11, 5, 13, 7, 15>(a, b);
      const Vec<T> cd0 = shuffle<0, 8, 2, 10, 4, 12, 6, 14>(c, d);
      const Vec<T> cd1 = shuffle<1, 9, 3, 11, 5, 13, 7, 15>(c, d);
      add(0, shuffle<0, 1, 8, 9>(ab0, cd0));
      add(1, shuffle<0, 1, 8, 9>(ab1, cd1));
      add(2, shuffle<2, 3, 10, 11>(ab0, cd0));
      add(3, shuffle<2, 3, 10, 11>(ab1, cd1));
      add(4, shuffle<4, 5, 12, 13>(ab0, cd0));
      add(5, shuffle<4, 5, 12, 13>(ab1, cd1));
      add(6, shuffle<6, 7, 14, 15>(ab0, cd0));
      add(7, shuffle<6, 7, 14, 15>(ab1, cd1));
    }
  }
}

// What tanh needs of a floating-point format.
template <class T> struct TanhConstants;
template <> struct TanhConstants<double> {
  static constexpr double saturated = 20.0;              // tanh is 1 from here on
  static constexpr double round = 6755399441055744.0;    // 1.5 * 2^52: adding it rounds to integer
  static constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
  static constexpr int mantissa = 52, terms = 13;
  static constexpr double series[terms] = {1.0,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800};    // 1/k!
  static constexpr std::int64_t one = 0x3ff0000000000000;
};
template <> struct TanhConstants<float> {
  static constexpr float saturated = 9.5f;
  static constexpr float round = 12582912.0f;
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  static constexpr int mantissa = 23, terms = 7;
  static constexpr float series[terms] = {1.0f,       1.0f / 2,   1.0f / 6,   1.0f / 24,
                                          1.0f / 120, 1.0f / 720, 1.0f / 5040};
  static constexpr std::int32_t one = 0x3f800000;
};

/// The nearest integers to numbers below 2^51.
inline DoubleVector nearest(DoubleVector x)
{
  return (x + TanhConstants<double>::round) - TanhConstants<double>::round;
}

/// tanh within about two units in the last place, from e = exp(2|x|) - 1 as e / (e + 2); exp by
/// reduction of the argument with ln 2 in two parts (Cody and Waite, Software Manual for the
/// Elementary Functions, 1980) and its Taylor series.
template <class T> inline Vec<T> tanh(Vec<T> x)
{
  using C = TanhConstants<T>;
  using Bits = typename Simd<T>::Bits;
  using Int = typename Simd<T>::Int;
  static constexpr Int sign_bit = Int(1) << (8 * sizeof(T) - 1);
  const Bits sign = (Bits)x & sign_bit;
  Vec<T> y = (Vec<T>)((Bits)x ^ sign);
  y = y > C::saturated ? broadcast<T>(C::saturated) : y;
  y += y;
  // y = n ln 2 + r with |r| <= ln(2)/2; p = exp(r) - 1 by its series
  const Vec<T> shifted = y * T(1.4426950408889634) + C::round;
  const Vec<T> n = shifted - C::round;
  const Vec<T> r = (y - n * C::ln2_high) - n * C::ln2_low;
  Vec<T> p = broadcast<T>(C::series[C::terms - 1]);
  for (int k = C::terms - 1; k-- > 0;) p = p * r + C::series[k];
  p *= r;
  const Vec<T> power = (Vec<T>)(((Bits)shifted << C::mantissa) + C::one);    // 2^n
  const Vec<T> e = power * p + (power - T(1));
  return (Vec<T>)((Bits)(e / (e + T(2))) | sign);
}

/// 1/(1 + exp(-x))
template <class T> inline Vec<T> sigmoid(Vec<T> x) { return T(0.5) + T(0.5) * tanh<T>(T(0.5) * x); }

}    // namespace pwmlff::PWMLFF_ISA
