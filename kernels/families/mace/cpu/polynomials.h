// SPDX-License-Identifier: GPL-2.0-or-later

// The symmetric contraction of a block of centers of one species: polynomials of the components of
// m, with coefficients for each channel (../plan.h).

#pragma once

#include "../../../core/cpu/simd.h"
#include "../plan.h"
#include "mace_program.h"

namespace pwmlff::PWMLFF_ISA::mace {

/// One polynomial, packed.
template <class T> class Polynomial {
 public:
  Polynomial(const MacePolynomial &polynomial, int channels, int npresent) :
      stride(round_up(channels, lanes<T>)),
      ncoefficients(polynomial.ncoefficients),
      program(polynomial.program.size()),
      coefficients(static_cast<std::size_t>(npresent) * ncoefficients * stride)
  {
    for (std::size_t k = 0; k < polynomial.program.size(); ++k) program[k] = polynomial.program[k];
    coefficients.fill(0);
    // Vectors of channels first: a vector goes through the whole program.
    for (int s = 0; s < npresent; ++s)
      for (int n = 0; n < ncoefficients; ++n)
        for (int k = 0; k < channels; ++k)
          of(s, k / lanes<T>)[n * lanes<T> + k % lanes<T>] = static_cast<T>(
              polynomial
                  .coefficients[(static_cast<std::size_t>(s) * ncoefficients + n) * channels + k]);
  }

  /// @param slot    of the species
  /// @param vector  of channels
  /// @param m       [components][MACE_BLOCK] vectors
  /// @param value   [MACE_BLOCK]
  void evaluate(int slot, int vector, const Vec<T> *m, Vec<T> *value) const
  {
    constexpr int G = MACE_BLOCK;
    const int *p = program.get();
    const T *c = of(slot, vector);
    Vec<T> sum[G] = {};
    for (int na = *p++; na > 0; --na) {
      const Vec<T> *const ma = m + *p++ * G;
      Vec<T> of_a[G];
      set(of_a, c);
      for (int nb = *p++; nb > 0; --nb) {
        const Vec<T> *const mb = m + *p++ * G;
        Vec<T> of_b[G];
        set(of_b, c);
        for (int nc = *p++; nc > 0; --nc, c += lanes<T>) {
          const Vec<T> *const mc = m + *p++ * G;
          const Vec<T> k = load(c);
          for (int g = 0; g < G; ++g) of_b[g] += k * mc[g];
        }
        for (int g = 0; g < G; ++g) of_a[g] += mb[g] * of_b[g];
      }
      for (int g = 0; g < G; ++g) sum[g] += ma[g] * of_a[g];
    }
    for (int g = 0; g < G; ++g) value[g] = sum[g];
  }

  /// @param gradient [MACE_BLOCK] dE/dB
  /// @param dm       like m, added to
  void back(int slot, int vector, const Vec<T> *m, const Vec<T> *gradient, Vec<T> *dm) const
  {
    constexpr int G = MACE_BLOCK;
    const int *p = program.get();
    const T *c = of(slot, vector);
    for (int na = *p++; na > 0; --na) {
      const int a = *p++ * G;
      Vec<T> of_a[G], weight_a[G];
      set(of_a, c);
      for (int g = 0; g < G; ++g) weight_a[g] = gradient[g] * m[a + g];
      for (int nb = *p++; nb > 0; --nb) {
        const int b = *p++ * G;
        Vec<T> of_b[G], weight_b[G];
        set(of_b, c);
        for (int g = 0; g < G; ++g) weight_b[g] = weight_a[g] * m[b + g];
        for (int nc = *p++; nc > 0; --nc, c += lanes<T>) {
          const int at = *p++ * G;
          const Vec<T> k = load(c);
          for (int g = 0; g < G; ++g) {
            of_b[g] += k * m[at + g];
            dm[at + g] += k * weight_b[g];
          }
        }
        for (int g = 0; g < G; ++g) {
          of_a[g] += m[b + g] * of_b[g];
          dm[b + g] += weight_a[g] * of_b[g];
        }
      }
      for (int g = 0; g < G; ++g) dm[a + g] += gradient[g] * of_a[g];
    }
  }

 private:
  static void set(Vec<T> *value, const T *&c)
  {
    const Vec<T> k = load(c);
    c += lanes<T>;
    for (int g = 0; g < MACE_BLOCK; ++g) value[g] = k;
  }
  const T *of(int slot, int vector) const
  {
    return coefficients.get() +
           (static_cast<std::size_t>(slot) * (stride / lanes<T>)+vector) * ncoefficients * lanes<T>;
  }
  T *of(int slot, int vector)
  {
    return const_cast<T *>(static_cast<const Polynomial *>(this)->of(slot, vector));
  }

  int stride, ncoefficients;
  Buffer<int> program;
  Buffer<T> coefficients;
};

}    // namespace pwmlff::PWMLFF_ISA::mace
