// SPDX-License-Identifier: GPL-2.0-or-later

#include "parameters.h"

#include "../families/dp/pair_terms.h"

#include <algorithm>

namespace pwmlff {

std::int64_t TrainingParameters::place_of_coefficients(std::size_t pair) const
{
  const std::size_t a = pair / model.nspecies, b = pair % model.nspecies;
  return offsets[(a + 1) * (offsets.size() / model.nspecies) - 1] +
         static_cast<std::int64_t>(b) * model.ncoef() * model.width;
}

template <class One, class Two>
void TrainingParameters::visit_fitting_nets(const One &one, const Two &two) const
{
  const int width = model.width, m2 = model.m2;
  std::int64_t model_offset = static_cast<std::int64_t>(pairs.size()) * per_pair;
  auto place = offsets.begin();
  const auto next = [&](std::int64_t count) {
    one(model_offset, *place++, count);
    model_offset += count;
  };
  for (int a = 0; a < model.nspecies; ++a) {
    for (std::size_t l = 0; l < hidden.size(); ++l) {
      const std::int64_t out = hidden[l].out;
      if (l) {
        next(hidden[l].in * out);
      } else {
        std::int64_t packed_offset = *place++;
        for (int k = 0; k < m2; ++k)
          for (int m = k; m < width; ++m, packed_offset += out) {
            const std::int64_t first = model_offset + (m * m2 + k) * out;
            if (m > k && m < m2) two(first, model_offset + (k * m2 + m) * out, packed_offset, out);
            else one(first, packed_offset, out);
          }
        model_offset += width * m2 * out;
      }
      next(out);
      if (hidden[l].scaled) next(out);
    }
    next(hidden.back().out);
    next(1);
    ++place;    // the coefficients
  }
}

TrainingParameters::TrainingParameters(const TrainingModel &model_,
                                       const std::vector<std::int64_t> &widths,
                                       const std::vector<TrainingLayer> &hidden_,
                                       const std::vector<std::int64_t> &offsets_, const double *x,
                                       const double *to_coefficients_, Product<double> multiply_) :
    model(model_),
    hidden(hidden_),
    offsets(offsets_),
    to_coefficients(matrix(to_coefficients_, model.ncoef(), model.nodes, model.nodes)),
    multiply(multiply_),
    parts(&training_parts<double>())
{
  constexpr std::int64_t columns = TrainingParts<double>::COLUMNS;
  n = (model.nodes + columns - 1) / columns * columns;
  int in = 1;
  for (const std::int64_t width : widths) {
    const int out = static_cast<int>(width);
    layers.push_back({in, out, per_pair, per_pair + static_cast<std::int64_t>(in) * out});
    per_pair = layers.back().bias + out;
    in = out;
  }
  pairs.resize(model.pairs.size());
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    Pair &pair = pairs[p];
    int widest = 1;
    pair.y.resize(layers.size() + 1);
    pair.h.resize(layers.size());
    pair.weight.resize(layers.size());
    pair.y[0].reserve(n);
    std::fill_n(pair.y[0].get(), n, 0.0);
    std::copy_n(x + p * model.nodes, model.nodes, pair.y[0].get());
    for (std::size_t l = 0; l < layers.size(); ++l) {
      pair.y[l + 1].reserve(layers[l].out * n);
      pair.h[l].reserve(layers[l].out * n);
      pair.weight[l].reserve(static_cast<std::int64_t>(layers[l].in) * layers[l].out);
      widest = std::max(widest, layers[l].out);
    }
    for (Buffer<double> *const array : {&pair.dy, &pair.dx, &pair.dz}) array->reserve(widest * n);
    pair.coefficients.reserve(static_cast<std::int64_t>(model.ncoef()) * model.width);
  }
  const auto end = [this](std::int64_t model_offset, std::int64_t, std::int64_t count) {
    total = std::max(total, model_offset + count);
  };
  visit_fitting_nets(end, [](std::int64_t, std::int64_t, std::int64_t, std::int64_t) {});
}

template <class T> void TrainingParameters::pack(const double *parameters, int nthreads, T *packed)
{
  parallel_for(pairs.size(), nthreads, [&](std::size_t p) {
    Pair &pair = pairs[p];
    const double *const net = parameters + static_cast<std::int64_t>(p) * per_pair;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const Layer &layer = layers[l];
      const int in = layer.in, out = layer.out;
      double *const y = pair.y[l + 1].get(), *const h = pair.h[l].get();
      const double *const x = pair.y[l].get();
      std::copy_n(net + layer.weight, in * out, pair.weight[l].get());
      for (int o = 0; o < out; ++o) std::fill_n(y + o * n, n, net[layer.bias + o]);
      multiply(matrix(y, out, n, n), matrix(pair.weight[l].get(), in, out, out).t(),
               matrix(x, in, n, n), true);
      const bool residual = embedding_residual(in, out);
      const int step = residual ? in : out;
      for (int o = 0; o < out; o += step)
        parts->activate(step, n, n, x, nullptr, residual, y + o * n, h + o * n);
    }
    const int width = model.width, ncoef = model.ncoef();
    double *const coefficients = pair.coefficients.get();
    multiply(matrix(coefficients, ncoef, width, width), to_coefficients,
             matrix(pair.y.back().get(), width, model.nodes, n).t());
    T *const place = packed + place_of_coefficients(p);
    std::transform(coefficients, coefficients + ncoef * width, place,
                   [](double c) { return static_cast<T>(c); });
  });

  visit_fitting_nets(
      [&](std::int64_t model_offset, std::int64_t packed_offset, std::int64_t count) {
        for (std::int64_t k = 0; k < count; ++k)
          packed[packed_offset + k] = static_cast<T>(parameters[model_offset + k]);
      },
      [&](std::int64_t one, std::int64_t other, std::int64_t packed_offset, std::int64_t count) {
        for (std::int64_t k = 0; k < count; ++k)
          packed[packed_offset + k] = static_cast<T>(parameters[one + k] + parameters[other + k]);
      });
}

void TrainingParameters::unpack(const double *row, int nthreads, double *gradient)
{
  parallel_for(pairs.size(), nthreads, [&](std::size_t p) {
    Pair &pair = pairs[p];
    double *const net = gradient + static_cast<std::int64_t>(p) * per_pair;
    const int width = model.width, ncoef = model.ncoef();
    const double *const place = row + place_of_coefficients(p);
    double *dy = pair.dy.get(), *dx = pair.dx.get(), *const dz = pair.dz.get();
    for (int m = 0; m < width; ++m)    // of columns beyond the nodes
      std::fill(dy + m * n + model.nodes, dy + (m + 1) * n, 0.0);
    multiply(matrix(dy, width, model.nodes, n), matrix(place, ncoef, width, width).t(),
             to_coefficients);
    for (std::size_t l = layers.size(); l-- > 0;) {
      const Layer &layer = layers[l];
      const int in = layer.in, out = layer.out;
      parts->back(out, n, n, nullptr, pair.h[l].get(), dy, dz);
      multiply(matrix(net + layer.weight, in, out, out), matrix(pair.y[l].get(), in, n, n),
               matrix(dz, out, n, n).t());
      for (int o = 0; o < out; ++o) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < n; ++k) sum += dz[o * n + k];
        net[layer.bias + o] = sum;
      }
      if (l == 0) break;
      const bool residual = embedding_residual(in, out);
      if (residual) std::copy_n(dy, in * n, dx);
      for (std::int64_t k = 0; out == 2 * in && k < in * n; ++k) dx[k] += dy[in * n + k];
      multiply(matrix(dx, in, n, n), matrix(pair.weight[l].get(), in, out, out),
               matrix(dz, out, n, n), residual);
      std::swap(dx, dy);
    }
  });

  visit_fitting_nets(
      [&](std::int64_t model_offset, std::int64_t packed_offset, std::int64_t count) {
        std::copy_n(row + packed_offset, count, gradient + model_offset);
      },
      [&](std::int64_t one, std::int64_t other, std::int64_t packed_offset, std::int64_t count) {
        std::copy_n(row + packed_offset, count, gradient + one);
        std::copy_n(row + packed_offset, count, gradient + other);
      });
}

template void TrainingParameters::pack(const double *, int, float *);
template void TrainingParameters::pack(const double *, int, double *);

}    // namespace pwmlff
