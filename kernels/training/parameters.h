// SPDX-License-Identifier: GPL-2.0-or-later

// From the parameters of a model to those of the kernels of training, and the gradient's way back.
//
// The parameters of a model are one array of float64: for each pair of species, center first, the
// layers of its embedding net (weight [in, out], bias [out]), then for each species those of its
// fitting net (weight, bias and, where there is one, dt [out]). What Training takes differs in two
// places: coefficients of splines stand for the embedding nets, and the first layer of a fitting
// net has one weight for the elements (m, k) and (k, m) of the descriptor, their sum.
//
// A layer of an embedding net is y = tanh(x W + b), plus x where it is as wide as x, or x twice
// where it is twice as wide (models.DP); x of the first one is R~_0 of the distance.

#pragma once

#include "matrices.h"
#include "training.h"

#include <cstdint>
#include <vector>

namespace pwmlff {

class PWMLFF_KERNELS_API TrainingParameters {
 public:
  /// @param widths    of the layers of the embedding nets, the last one that of the model
  /// @param hidden, offsets  Training::hidden() and offsets()
  /// @param x         float64 [pairs, nodes] R~_0 at the nodes of the splines
  /// @param to_coefficients  float64 [ncoef, nodes] coefficients of splines from values at nodes;
  ///                  kept, not copied
  TrainingParameters(const TrainingModel &model, const std::vector<std::int64_t> &widths,
                     const std::vector<TrainingLayer> &hidden,
                     const std::vector<std::int64_t> &offsets, const double *x,
                     const double *to_coefficients, Product<double> multiply);

  std::int64_t size() const { return total; }    // of the model

  /// Evaluate the embedding nets at the nodes, and write what Training takes.
  /// @param parameters [size()]
  /// @param packed     Training::nparameters() numbers, zero between the arrays
  template <class T> void pack(const double *parameters, int nthreads, T *packed);

  /// Gradient by the parameters that were packed last, from that by what Training took.
  /// @param row        of Training::gradients(), or a sum of them
  /// @param gradient   [size()] overwritten
  void unpack(const double *row, int nthreads, double *gradient);

 private:
  struct Layer {
    int in, out;
    std::int64_t weight, bias;    // in the numbers of a net
  };
  struct Pair {
    std::vector<Buffer<double>> y, h, weight;    // inputs of the layers [in, n], tanh [out, n], W
    Buffer<double> dy, dx, dz, coefficients;
  };

  std::int64_t place_of_coefficients(std::size_t pair) const;    // in what Training takes

  /// Go over the numbers of the fitting nets: one(model_offset, packed_offset, count) where
  /// Training takes them as they are, two(first, second, packed_offset, count) where it takes sums.
  template <class One, class Two> void visit_fitting_nets(const One &one, const Two &two) const;

  const TrainingModel model;
  std::vector<Layer> layers;
  std::vector<TrainingLayer> hidden;
  std::vector<std::int64_t> offsets;
  Matrix<double> to_coefficients;
  Product<double> multiply;
  const TrainingParts<double> *parts;
  std::int64_t n;    // nodes, rounded up to TrainingParts::COLUMNS
  std::int64_t per_pair = 0, total = 0;
  std::vector<Pair> pairs;
};

}    // namespace pwmlff
