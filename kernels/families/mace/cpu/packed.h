// SPDX-License-Identifier: GPL-2.0-or-later

// A MACE model packed for one instruction set and precision; constant once made.

#pragma once

#include "channels.h"
#include "edges.h"
#include "mace_program.h"
#include "polynomials.h"
#include "radial.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA::mace {

template <class T> using Matrices = std::vector<std::unique_ptr<const ChannelMatrix<T>>>;

/// A matrix and its transpose.
template <class T> struct Mixing {
  Matrices<T> there, back;

  void add(const MaceMatrix &matrix)
  {
    there.push_back(std::make_unique<ChannelMatrix<T>>(matrix.values.data(), matrix.rows,
                                                       matrix.columns, matrix.columns, 1));
    back.push_back(std::make_unique<ChannelMatrix<T>>(matrix.values.data(), matrix.columns,
                                                      matrix.rows, 1, matrix.columns));
  }
};

template <class T> struct Path {
  int feature, degree;
  int first;    // component of A that is its first
  int part;     // among the paths to the same degree
  PathSums<T> sums;
  Coupled<T> coupled;
};

/// A layer, packed.
template <class T> struct PackedLayer {
  int into, out, degree_paths[MACE_MOST_DEGREE + 1];
  int ncomponents;    // of A
  bool density, residual;
  const MaceLayer *source;
  std::unique_ptr<PackedRadial<T>> radial;
  std::vector<std::unique_ptr<const Path<T>>> paths;
  std::vector<std::unique_ptr<const Polynomial<T>>> polynomials;
  Mixing<T> up, product, skip;
  Matrices<T> message;         // [degree, species or one]
  Matrices<T> message_back;    // [path, species or one]
  int messages;
};

template <class T> class PackedMace {
 public:
  static constexpr int width = lanes<T>;

  /// @param plan  its network outlives this
  PackedMace(const MacePlan &plan, Precision precision) :
      network(plan.network),
      channels(network.channels),
      stride(round_up(channels, width)),
      ncomponents((network.largest + 1) * (network.largest + 1)),
      nspecies(network.nspecies()),
      slot(plan.slot.size())
  {
    for (std::size_t s = 0; s < plan.slot.size(); ++s) slot[s] = plan.slot[s];
    for (std::size_t t = 0; t < network.layers.size(); ++t)
      layers.push_back(pack(plan, plan.layers[t], network.layers[t]));
    for (const auto &layer : layers)
      if (precision != Precision::exact) layer->radial->tabulate(plan, *layer->source);
    embed();
  }

  std::size_t table_bytes() const
  {
    std::size_t bytes = 0;
    for (const auto &layer : layers) bytes += layer->radial->table_bytes();
    return bytes;
  }

  /// Numbers of the features of an atom up to a degree.
  std::size_t size_of(int degree) const
  {
    return static_cast<std::size_t>(degree + 1) * (degree + 1) * stride;
  }

  const MaceNetwork &network;
  const int channels, stride, ncomponents;    // components: of messages
  const int nspecies;
  Buffer<int> slot;    // [nspecies] of MacePlan
  std::vector<std::unique_ptr<PackedLayer<T>>> layers;
  Buffer<T> embedded, skipped;    // [nspecies, stride]

 private:
  std::unique_ptr<PackedLayer<T>> pack(const MacePlan &plan, const MaceLayerPlan &planned,
                                       const MaceLayer &source)
  {
    auto layer = std::make_unique<PackedLayer<T>>();
    layer->source = &source;
    layer->into = source.into();
    layer->out = source.out();
    layer->density = !source.density.empty();
    layer->residual = !source.skip.empty();
    layer->messages = source.messages;
    for (int &count : layer->degree_paths) count = 0;
    layer->ncomponents = 0;
    for (std::size_t p = 0; p < source.paths.size(); ++p) {
      const MacePath &path = source.paths[p];
      layer->paths.push_back(std::unique_ptr<const Path<T>>(new Path<T>{
          path.feature, path.degree, layer->ncomponents, layer->degree_paths[path.degree]++,
          path_sums<T>(path.feature, path.degree), Coupled<T>(planned.couplings[p])}));
      layer->ncomponents += 2 * path.degree + 1;
    }
    layer->radial = std::make_unique<PackedRadial<T>>(source, stride, width);
    for (const MaceMatrix &matrix : source.up) layer->up.add(matrix);
    for (const MaceMatrix &matrix : source.product) layer->product.add(matrix);
    for (const MaceMatrix &matrix : source.skip) layer->skip.add(matrix);
    for (int l = 0; l <= network.largest; ++l)
      for (int s = 0; s < source.messages; ++s) {
        const MaceMatrix &matrix = source.message_of(l, s);
        layer->message.push_back(std::make_unique<ChannelMatrix<T>>(
            matrix.values.data(), matrix.rows, matrix.columns, matrix.columns, 1));
      }
    for (const auto &path : layer->paths)
      for (int s = 0; s < source.messages; ++s) {
        const MaceMatrix &matrix = source.message_of(path->degree, s);
        layer->message_back.push_back(std::make_unique<ChannelMatrix<T>>(
            matrix.values.data() +
                static_cast<std::ptrdiff_t>(path->part) * channels * matrix.columns,
            channels, channels, 1, matrix.columns));
      }
    for (const MacePolynomial &polynomial : planned.polynomials)
      layer->polynomials.push_back(std::make_unique<Polynomial<T>>(
          polynomial, channels, static_cast<int>(plan.species.size())));
    return layer;
  }

  /// What goes along edges in layer 0, and what is added there: both depend on species alone.
  void embed()
  {
    const auto room = static_cast<std::size_t>(nspecies) * stride;
    embedded.reserve(room);
    skipped.reserve(room);
    embedded.fill(0);
    skipped.fill(0);
    const MaceLayer &layer = network.layers[0];
    for (int s = 0; s < nspecies; ++s)
      for (int k = 0; k < channels; ++k)
        for (int o = 0; o < channels; ++o) {
          const double x = network.embedding[static_cast<std::size_t>(s) * channels + k];
          const std::size_t at = static_cast<std::size_t>(k) * channels + o;
          embedded[static_cast<std::size_t>(s) * stride + o] +=
              static_cast<T>(x * layer.up[0].values[at]);
          if (layers[0]->residual)
            skipped[static_cast<std::size_t>(s) * stride + o] +=
                static_cast<T>(x * layer.skip[s].values[at]);
        }
  }
};

}    // namespace pwmlff::PWMLFF_ISA::mace
