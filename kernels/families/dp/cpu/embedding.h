// SPDX-License-Identifier: GPL-2.0-or-later

// An embedding net as it is, in float64, one neighbor per lane.

#pragma once

#include "../network.h"
#include "../pair_terms.h"
#include "matrix.h"

namespace pwmlff::PWMLFF_ISA {

class Embedding {
 public:
  explicit Embedding(const DPNet &net) :
      nlayers(static_cast<int>(net.layers.size())),
      widest(1),
      layers(static_cast<Layer *>(::operator new(sizeof(Layer) * net.layers.size())))
  {
    for (int l = 0; l < nlayers; ++l) {
      new (&layers[l]) Layer(net.layers[l]);
      if (net.layers[l].out > widest) widest = net.layers[l].out;
    }
  }
  Embedding(Embedding &&) = delete;
  ~Embedding()
  {
    for (int l = 0; l < nlayers; ++l) layers[l].~Layer();
    ::operator delete(layers);
  }

  /// Numbers of scratch that evaluate() needs.
  std::size_t scratch_size() const { return 4 * static_cast<std::size_t>(widest) * n; }

  /// @param x one input per lane
  /// @param value [M, lanes] the output
  /// @param slope [M, lanes] its derivative by the input
  void evaluate(DoubleVector x, double *scratch, double *value, double *slope) const
  {
    double *f = scratch, *d = f + widest * n, *nf = d + widest * n, *nd = nf + widest * n;
    store(f, x);
    store(d, broadcast(1.0));
    for (int l = 0; l < nlayers; ++l) {
      const bool last = l == nlayers - 1;
      double *const to_f = last ? value : nf;
      double *const to_d = last ? slope : nd;
      layers[l].forward(f, d, to_f, to_d);
      nf = f, nd = d;
      f = to_f, d = to_d;
    }
  }

 private:
  static constexpr int n = lanes<double>;

  struct Layer {
    explicit Layer(const DPLayer &layer) :
        in(layer.in),
        out(layer.out),
        residual(layer.residual),
        weights(layer.weight.data(), in, out, out, 1),
        bias(out),
        step(out)
    {
      for (int o = 0; o < out; ++o) {
        bias[o] = layer.bias[o];
        step[o] = layer.step[o];
        stepped |= step[o] != 1.0;
      }
    }

    void forward(const double *f, const double *d, double *nf, double *nd) const
    {
      weights.apply(f, bias.get(), nf);
      weights.apply(d, nullptr, nd);
      // Constants, so that most layers spend no time on either.
      using Yes = std::true_type;
      using No = std::false_type;
      if (stepped)
        return residual ? output(Yes(), Yes(), f, d, nf, nd) : output(No(), Yes(), f, d, nf, nd);
      return residual ? output(Yes(), No(), f, d, nf, nd) : output(No(), No(), f, d, nf, nd);
    }

    template <class Residual, class Stepped>
    void output(Residual adds, Stepped steps, const double *f, const double *d, double *nf,
                double *nd) const
    {
      const int period = adds ? in : 1;
      for (int o = 0, i = 0; o < out; ++o, i = i + 1 < period ? i + 1 : 0) {
        const double factor = steps ? step[o] : 1.0;
        const DoubleVector t = tanh<double>(load(nf + o * n));
        store(nf + o * n, hidden_output(adds, factor, load(f + i * n), t));
        store(nd + o * n, hidden_tangent(adds, factor, t, load(d + i * n), load(nd + o * n)));
      }
    }

    const int in, out;
    const bool residual;
    bool stepped = false;
    TiledMatrix<double, 1> weights;
    Buffer<double> bias, step;
  };

  int nlayers, widest;
  Layer *layers;
};

}    // namespace pwmlff::PWMLFF_ISA
