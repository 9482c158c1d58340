// SPDX-License-Identifier: GPL-2.0-or-later

// The network of one species for a few centers at once, one neuron per lane.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../network.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// weight[i][o] of a layer, rows padded to whole vectors with zeros: both products with it run over
/// the lanes of rows.
template <class T> class Weights {
 public:
  Weights() = default;
  /// @param weight [out, in]
  /// @param scale [in] or null; a factor of each column
  void set(const double *weight, const double *scale, int nin, int nout)
  {
    in = nin;
    out = nout;
    padded = round_up(out, lanes<T> < 4 ? 4 : lanes<T>);    // sum4 writes four
    data.reserve(static_cast<std::size_t>(round_up(in, 4)) * padded);
    data.fill(0);
    for (int o = 0; o < out; ++o)
      for (int i = 0; i < in; ++i)
        data[static_cast<std::size_t>(i) * padded + o] =
            static_cast<T>(weight[static_cast<std::size_t>(o) * in + i] * (scale ? scale[i] : 1.0));
  }

  /// y = bias + weight x for `C` centers.
  /// @param x [C] pointers to [in], bias and y [C] pointers to [padded]
  template <int C> void forward(const T *const *x, const T *const *bias, T *const *y) const
  {
    constexpr int wide = PWMLFF_REGISTERS > 16 ? 6 : 4;
    int o = 0;
    for (; o + wide * lanes<T> <= padded; o += wide * lanes<T>) columns<C, wide>(x, bias, y, o);
    for (; o < padded; o += lanes<T>) columns<C, 1>(x, bias, y, o);
  }

  /// x = weight^T y.
  /// @param x [C] pointers to [in rounded up to 4]
  template <int C> void backward(const T *const *y, T *const *x) const
  {
    for (int i = 0; i < in; i += 4) {
      const T *const w = data.get() + static_cast<std::size_t>(i) * padded;
      Vec<T> sum[C][4] = {};
      for (int o = 0; o < padded; o += lanes<T>)
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          const Vec<T> row = load(w + static_cast<std::size_t>(r) * padded + o);
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) sum[c][r] += row * load(y[c] + o);
        }
      for (int c = 0; c < C; ++c) sum4<T>(sum[c][0], sum[c][1], sum[c][2], sum[c][3], x[c] + i);
    }
  }

  int in = 0, out = 0, padded = 0;

 private:
  template <int C, int W>
  void columns(const T *const *x, const T *const *bias, T *const *y, int o) const
  {
    Vec<T> sum[C][W];
    for (int c = 0; c < C; ++c)
      for (int w = 0; w < W; ++w) sum[c][w] = load(bias[c] + o + w * lanes<T>);
    const T *row = data.get() + o;
    for (int i = 0; i < in; ++i, row += padded)
#pragma GCC unroll 8
      for (int w = 0; w < W; ++w) {
        const Vec<T> weight = load(row + w * lanes<T>);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[c][w] += weight * x[c][i];
      }
    for (int c = 0; c < C; ++c)
      for (int w = 0; w < W; ++w) store(y[c] + o + w * lanes<T>, sum[c][w]);
  }

  Buffer<T> data;    // [in rounded up to 4, padded]
};

/// One or two hidden layers of tanh, and a linear one.
template <class T> class Neurons {
 public:
  Neurons(const NepNetwork &network, int species) :
      depth(network.nhidden1 ? 2 : 1), shift(network.shift[species])
  {
    const int nd = network.ndescriptors(), h0 = network.nhidden0, h1 = network.nhidden1;
    weights[0].set(&network.weight0[static_cast<std::size_t>(species) * h0 * nd],
                   network.q_scaler.data(), nd, h0);
    set(bias[0], &network.bias0[static_cast<std::size_t>(species) * h0], h0);
    if (h1) {
      weights[1].set(&network.weight1[static_cast<std::size_t>(species) * h1 * h0], nullptr, h0,
                     h1);
      set(bias[1], &network.bias1[static_cast<std::size_t>(species) * h1], h1);
    }
    set(last, &network.last[static_cast<std::size_t>(species) * network.nlast()], network.nlast());
    if (network.charge_mode > 0)
      set(to_charge, &network.last_charge[static_cast<std::size_t>(species) * h0], h0);
  }

  /// Numbers of scratch for each center.
  std::size_t scratch_size() const
  {
    return static_cast<std::size_t>(weights[0].padded) * 2 +
           static_cast<std::size_t>(weights[1].padded) * 2 + 4;
  }

  /// Energies of `C` centers and their derivatives by the descriptors before scaling.
  /// @param q [C] pointers to [ndescriptors], aligned
  /// @param by_q [C] pointers to [ndescriptors rounded up to 4]
  /// @param charge [C], and charge_by_q likewise; of a model with charges
  template <int C>
  void evaluate(const T *const *q, T *scratch, double *energy, T *const *by_q, double *charge,
                T *const *charge_by_q) const
  {
    T *hidden[2][C], *slope[2][C];
    for (int layer = 0; layer < depth; ++layer)
      for (int c = 0; c < C; ++c) {
        hidden[layer][c] = scratch;
        slope[layer][c] = scratch += weights[layer].padded;
        scratch += weights[layer].padded;
      }
    for (int layer = 0; layer < depth; ++layer) {
      const T *in[C], *from[C];
      for (int c = 0; c < C; ++c) {
        in[c] = layer == 0 ? q[c] : hidden[0][c];
        from[c] = bias[layer].get();
      }
      weights[layer].template forward<C>(in, from, hidden[layer]);
      for (int c = 0; c < C; ++c)
        for (int o = 0; o < weights[layer].padded; o += lanes<T>)
          store(hidden[layer][c] + o, tanh<T>(load(hidden[layer][c] + o)));
    }
    const int top = depth - 1;
    const auto output = [&](const Buffer<T> &weight, int c) {
      Vec<T> sum_of_lanes{};
      // depth is 1 or 2. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
      for (int o = 0; o < weights[top].padded; o += lanes<T>) {
        const Vec<T> t = load(hidden[top][c] + o), w = load(&weight[o]);
        sum_of_lanes += w * t;
        store(slope[top][c] + o, w * (T(1) - t * t));
      }
      return static_cast<double>(sum<T>(sum_of_lanes));
    };
    if (to_charge.size() > 0) {
      for (int c = 0; c < C; ++c) charge[c] = output(to_charge, c);
      weights[0].template backward<C>(slope[0], charge_by_q);
    }
    for (int c = 0; c < C; ++c) energy[c] = shift + output(last, c);
    if (depth == 2) {
      weights[1].template backward<C>(slope[1], slope[0]);
      for (int c = 0; c < C; ++c) {
        for (int o = round_up(weights[1].in, 4); o < weights[0].padded; ++o) slope[0][c][o] = 0;
        for (int o = 0; o < weights[0].padded; o += lanes<T>) {
          const Vec<T> t = load(hidden[0][c] + o);
          store(slope[0][c] + o, load(slope[0][c] + o) * (T(1) - t * t));
        }
      }
    }
    weights[0].template backward<C>(slope[0], by_q);
  }

 private:
  static void set(Buffer<T> &to, const double *from, int n)
  {
    to.reserve(round_up(n, lanes<T> < 4 ? 4 : lanes<T>));
    to.fill(0);
    for (int i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }

  const int depth;
  const double shift;
  Weights<T> weights[2];
  Buffer<T> bias[2], last, to_charge;
};

}    // namespace pwmlff::PWMLFF_ISA::nep
