// SPDX-License-Identifier: GPL-2.0-or-later

// The symmetric contraction and its way back: polynomials of a few components, with coefficients
// for each channel. The components are those of m, one that is 1 and, on the way back, dE/dB:
//
//   B_n    = sum over a of m_a (sum over b of m_b (sum over c of coefficient_abc m_c))
//   dE/dm_x = sum over n of dE/dB_n (sum over b of m_b (sum over c of coefficient_nbc m_c))
//
// An item is one output of a few centers of one species, for MACE_CHANNELS channels.

#pragma once

#include "mix.h"

#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// Where the three factors of a term are in its number, and what follows it.
struct MaceTermCode {
  static constexpr int LAST_B = 1 << 24, LAST_A = 1 << 25;    // of those with this b, with this a
  PWMLFF_FORMULA static int make(int a, int b, int c) { return a << 16 | b << 8 | c; }
  PWMLFF_FORMULA static int a(int code) { return code >> 16 & 0xff; }
  PWMLFF_FORMULA static int b(int code) { return code >> 8 & 0xff; }
  PWMLFF_FORMULA static int c(int code) { return code & 0xff; }
  /// Of a term without factors.
  PWMLFF_FORMULA static int nothing(int one) { return make(one, one, one); }
};

template <class T> struct MaceContract {
  static constexpr int lanes = 32;
  static constexpr int resident = 512;
  static constexpr const char *name = "MaceContract";
  static constexpr int G = sizeof(T) == 8 ? 2 : 4;    // centers
  static constexpr int TOGETHER = 4;                  // terms; outputs have a multiple of so many
  MaceGpuModel<T> model;
  MaceGpuLayer<T> layer;
  MaceGpuChunk<T> chunk;
  MaceGpuPolynomials<T> polynomials;
  bool back;

  PWMLFF_FORMULA int nblocks() const { return model.row / MACE_CHANNELS; }
  /// @param nspans  of centers, of G at most
  std::int64_t nitems(std::int64_t nspans) const
  {
    return nspans * polynomials.noutputs * nblocks();
  }

  static std::size_t scratch_bytes(const MaceGpuModel<T> &model, const MaceGpuLayer<T> &layer)
  {
    const int most = model.ncomponents + 1 + layer.components(layer.out);
    return sizeof(T) * most * G * MACE_CHANNELS;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t block = item % nblocks();
    const std::int64_t output = item / nblocks() % polynomials.noutputs;
    const MaceSpan span(chunk.segment, 1, G, item / nblocks() / polynomials.noutputs);
    const std::int64_t first = chunk.segment[span.species] + span.first;
    const int out = layer.components(layer.out), one = model.ncomponents;
    T *const x = team.template scratch<T>();    // [components, G, MACE_CHANNELS]
    double along[G] = {};                       // m dE/dm
    for (int k = team.lane(); k < MACE_CHANNELS; k += team.lanes()) {
      const std::int64_t channel = block * MACE_CHANNELS + k;
      PWMLFF_UNROLL_ALL
      for (int g = 0; g < G; ++g) {
        const bool is_center = g < span.count;
        const std::int64_t center = first + (is_center ? g : 0);
        const T *const m = chunk.message + center * model.ncomponents * model.row + channel;
        const T *const by_b = chunk.contracted + center * out * model.row + channel;
        T *const to = x + g * MACE_CHANNELS + k;
        for (int c = 0; c < model.ncomponents; ++c)
          to[c * G * MACE_CHANNELS] = m[static_cast<std::int64_t>(c) * model.row];
        to[one * G * MACE_CHANNELS] = T(1);
        for (int n = 0; back && n < out; ++n)
          to[(one + 1 + n) * G * MACE_CHANNELS] = by_b[static_cast<std::int64_t>(n) * model.row];
      }
      T value[G];
      evaluate(x + k, output, model.slot[span.species], channel, value);
      PWMLFF_UNROLL_ALL
      for (int g = 0; g < G; ++g) {
        if (g >= span.count) continue;
        const std::int64_t at = ((first + g) * polynomials.noutputs + output) * model.row + channel;
        if (!back) {
          chunk.contracted[at] = value[g];
          continue;
        }
        chunk.by_message[at] = value[g];
        along[g] += static_cast<double>(x[(output * G + g) * MACE_CHANNELS + k]) *
                    static_cast<double>(value[g]);
      }
    }
    if (!back || !layer.density) return;
    PWMLFF_UNROLL_ALL
    for (int g = 0; g < G; ++g) {
      const double sum = team.sum(along[g]);
      if (team.lane() == 0 && g < span.count)
        team.add(chunk.by_density + first + g, -sum * chunk.density[first + g]);
    }
  }

 private:
  /// @param x  from a channel on
  PWMLFF_FORMULA void evaluate(const T *x, std::int64_t output, int slot, std::int64_t channel,
                               T *value) const
  {
    constexpr int step = G * MACE_CHANNELS;
    const int begin = polynomials.first[output], end = polynomials.first[output + 1];
    const int nterms = polynomials.first[polynomials.noutputs];
    const T *coefficient = global_pointer(polynomials.coefficients) +
                           (static_cast<std::int64_t>(slot) * nterms + begin) * model.row + channel;
    T of_a[G], of_b[G];
    for (int g = 0; g < G; ++g) value[g] = of_a[g] = of_b[g] = T(0);
    for (int n = begin; n < end; n += TOGETHER) {
      int code[TOGETHER];
      T factor[TOGETHER];
      load_together<TOGETHER>(global_pointer(polynomials.terms) + n, code);
      PWMLFF_UNROLL_ALL
      for (int k = 0; k < TOGETHER; ++k, coefficient += model.row) factor[k] = *coefficient;
      PWMLFF_UNROLL_ALL
      for (int k = 0; k < TOGETHER; ++k) {
        const T *const c = x + MaceTermCode::c(code[k]) * step;
        for (int g = 0; g < G; ++g) of_b[g] += factor[k] * c[g * MACE_CHANNELS];
        if (!(code[k] & MaceTermCode::LAST_B)) continue;
        const T *const b = x + MaceTermCode::b(code[k]) * step;
        for (int g = 0; g < G; ++g) {
          of_a[g] += b[g * MACE_CHANNELS] * of_b[g];
          of_b[g] = T(0);
        }
        if (!(code[k] & MaceTermCode::LAST_A)) continue;
        const T *const a = x + MaceTermCode::a(code[k]) * step;
        for (int g = 0; g < G; ++g) {
          value[g] += a[g * MACE_CHANNELS] * of_a[g];
          of_a[g] = T(0);
        }
      }
    }
  }
};

}    // namespace pwmlff
