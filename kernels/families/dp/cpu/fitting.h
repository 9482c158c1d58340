// SPDX-License-Identifier: GPL-2.0-or-later

// From the moments T of a block of atoms to their energies and dE/dT, one atom per lane.

#pragma once

#include "../network.h"
#include "../pair_terms.h"
#include "layers.h"
#include "matrix.h"

namespace pwmlff::PWMLFF_ISA {

/// The descriptor D = T^T T[:, :m2] and the fitting net of one species.
///
/// D is symmetric in its first m2 rows, so only elements (m, k) with k <= m enter (fold_weights).
template <class T, int C> class Fitting {
 public:
  static constexpr int atoms = C * lanes<T>;

  /// @param grade of the last hidden layer, or null
  Fitting(const DPNet &net, const DPGrade *grade, int width, int m2) :
      width(width), m2(m2), depth(0), widest(0)
  {
    ndescriptor = descriptor_size(width, m2);
    nlayers = static_cast<int>(net.layers.size()) - 1;
    layers = static_cast<Layer *>(::operator new(sizeof(Layer) * nlayers));
    for (int l = 0; l < nlayers; ++l) {
      const DPLayer &layer = net.layers[l];
      if (l == 0) {
        new (&layers[l]) Layer(layer, ndescriptor, fold_weights(layer.weight, width, m2).data());
      } else {
        new (&layers[l]) Layer(layer, layer.in, layer.weight.data());
      }
      depth += layer.out;
      widest = layer.out > widest ? layer.out : widest;
    }
    const DPLayer &end = net.layers[nlayers];
    last_is_first = nlayers == 0;
    nlast = last_is_first ? ndescriptor : end.in;
    last.reserve(nlast);
    const std::vector<double> weight =
        last_is_first ? fold_weights(end.weight, width, m2) : end.weight;
    for (int i = 0; i < nlast; ++i) last[i] = weight[i];
    last_bias = end.bias[0];
    if (!grade) return;
    grade_factor = new TiledMatrix<T, C>(grade->factor.data(), nlast, nlast, 1, nlast);
    grade_shift.reserve(nlast);
    for (int o = 0; o < nlast; ++o) {
      double shift = 0.0;
      for (int i = 0; i < nlast; ++i) shift -= grade->factor[o * nlast + i] * grade->mean[i];
      grade_shift[o] = static_cast<T>(shift);
    }
  }
  Fitting(Fitting &&) = delete;
  ~Fitting()
  {
    for (int l = 0; l < nlayers; ++l) layers[l].~Layer();
    ::operator delete(layers);
    delete grade_factor;
  }

  /// Numbers of scratch that evaluate() needs.
  std::size_t scratch_size() const
  {
    return static_cast<std::size_t>(atoms) * (2 * ndescriptor + 2 * depth + 2 * widest);
  }

  /// @param moments [4, width, atoms]
  /// @param energy [atoms]
  /// @param gradient [4, width, atoms] of each atom's energy with respect to its moments
  /// @param grade [atoms], or null where not wanted
  void evaluate(const T *moments, T *scratch, double *energy, T *gradient, double *grade) const
  {
    T *const descriptor = scratch;
    T *const descriptor_gradient = descriptor + ndescriptor * atoms;
    T *const values = descriptor_gradient + ndescriptor * atoms;    // outputs of the hidden layers
    T *const tanhs = values + depth * atoms;                        // and their tanh
    T *const dy = tanhs + depth * atoms;
    T *const dz = dy + widest * atoms;

    const std::ptrdiff_t component = static_cast<std::ptrdiff_t>(width) * atoms;
    const MomentRows<const T> t{moments, atoms, component};
    describe<T, C>(width, m2, t, atoms, descriptor);
    const T *x = descriptor;
    std::ptrdiff_t offset = 0;
    for (int l = 0; l < nlayers; ++l) {
      layers[l].forward(x, tanhs + offset, values + offset);
      x = values + offset;
      offset += layers[l].out * atoms;
    }

    for (int a = 0; a < atoms; ++a) energy[a] = last_bias;
    for (int i = 0; i < nlast; ++i)
      for (int a = 0; a < atoms; ++a) energy[a] += last[i] * x[i * atoms + a];

    if (grade) evaluate_grade(x, dy, grade);

    T *const dx = last_is_first ? descriptor_gradient : dy;
    for (int i = 0; i < nlast; ++i)
      for (int a = 0; a < atoms; ++a) dx[i * atoms + a] = static_cast<T>(last[i]);
    for (int l = nlayers - 1; l >= 0; --l) {
      offset -= layers[l].out * atoms;
      layers[l].backward(tanhs + offset, dy, dz, l > 0 ? dy : descriptor_gradient);
    }
    for (std::ptrdiff_t i = 0; i < 4 * component; ++i) gradient[i] = 0;
    describe_backward<T, C>(width, m2, t, atoms, descriptor_gradient, {gradient, atoms, component});
  }

 private:
  /// gamma (network.h) of the last hidden layer x.
  void evaluate_grade(const T *x, T *distance, double *grade) const
  {
    grade_factor->apply(x, grade_shift.get(), distance);
    double square[atoms] = {};
    for (int i = 0; i < nlast; ++i)
      for (int a = 0; a < atoms; ++a) {
        const double component = distance[i * atoms + a];
        square[a] += component * component;
      }
    for (int a = 0; a < atoms; ++a) grade[a] = __builtin_sqrt(square[a]);
  }

  struct Layer {
    Layer(const DPLayer &layer, int in, const double *weight) :
        in(in),
        out(layer.out),
        residual(layer.residual),
        weights(weight, in, out, out, 1),
        transposed(weight, out, in, 1, out),
        bias(out),
        step(out)
    {
      for (int o = 0; o < out; ++o) {
        bias[o] = static_cast<T>(layer.bias[o]);
        step[o] = static_cast<T>(layer.step[o]);
      }
    }

    void forward(const T *x, T *t, T *y) const
    {
      weights.apply(x, bias.get(), t);
      activate(out, atoms, atoms, x, step.get(), residual, t, t, y);
    }

    /// dx = gradient with respect to the input, from dy; they may be the same array.
    void backward(const T *t, const T *dy, T *dz, T *dx) const
    {
      activate_backward(out, atoms, atoms, step.get(), t, dy, dz);
      if (!residual) return transposed.apply(dz, nullptr, dx);
      transposed.apply_add(dz, dy, dx);
    }

    const int in, out;
    const bool residual;
    TiledMatrix<T, C> weights, transposed;
    Buffer<T> bias, step;
  };

  const int width, m2;
  int ndescriptor, nlayers, nlast;
  std::ptrdiff_t depth, widest;
  bool last_is_first;    // there is no hidden layer
  Layer *layers;
  Buffer<double> last;
  double last_bias;
  TiledMatrix<T, C> *grade_factor = nullptr;    // null without a grade
  Buffer<T> grade_shift;                        // -factor mean
};

}    // namespace pwmlff::PWMLFF_ISA
