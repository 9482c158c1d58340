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
  int ncomponents;                   // of A
  int edge_channels, edge_stride;    // of g, A and the radial functions; padded
  bool density, residual;
  const MaceLayer *source;
  std::unique_ptr<PackedRadial<T>> radial;
  std::vector<std::unique_ptr<const Path<T>>> paths;
  std::vector<std::unique_ptr<const Polynomial<T>>> polynomials;
  Mixing<T> up, product, skip;
  Matrices<T> message;         // [degree, species or one]
  Matrices<T> message_back;    // [path, species or one]
  int messages, skips;
  // Of a layer with gates: from own features to n and z, and what is behind the gates.
  bool gated;
  Mixing<T> own, own_gate, mix;
  Matrices<T> gate;         // [1 .. L] from A of degree 0 to z
  Matrices<T> gate_back;    // [parts of A of degree 0][1 .. L]
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

  /// Numbers of n and z of an atom.
  std::size_t ungated_size() const
  {
    return static_cast<std::size_t>(ncomponents + network.largest) * stride;
  }
  /// Numbers of what goes along edges into a layer.
  static std::size_t sent_size(const PackedLayer<T> &layer)
  {
    return static_cast<std::size_t>(layer.into + 1) * (layer.into + 1) * layer.edge_stride;
  }

  const MaceNetwork &network;
  const int channels, stride, ncomponents;    // components: of messages
  const int nspecies;
  Buffer<int> slot;    // [nspecies] of MacePlan
  std::vector<std::unique_ptr<PackedLayer<T>>> layers;
  Buffer<T> embedded;    // [nspecies, edge_stride of layer 0]
  Buffer<T> skipped;     // [nspecies, stride]
  Buffer<T> own;         // [nspecies, ungated_size()] of layer 0

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
    layer->skips = source.skips;
    layer->gated = source.gates.has_value();
    layer->edge_channels = source.edge_channels();
    layer->edge_stride = round_up(layer->edge_channels, width);
    for (int &count : layer->degree_paths) count = 0;
    layer->ncomponents = 0;
    for (std::size_t p = 0; p < source.paths.size(); ++p) {
      const MacePath &path = source.paths[p];
      layer->paths.push_back(std::unique_ptr<const Path<T>>(new Path<T>{
          path.feature, path.degree, layer->ncomponents, layer->degree_paths[path.degree]++,
          path_sums<T>(path.feature, path.degree), Coupled<T>(planned.couplings[p])}));
      layer->ncomponents += 2 * path.degree + 1;
    }
    layer->radial = std::make_unique<PackedRadial<T>>(source, layer->edge_stride, width);
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
                static_cast<std::ptrdiff_t>(path->part) * layer->edge_channels * matrix.columns,
            channels, layer->edge_channels, 1, matrix.columns));
      }
    if (layer->gated) pack_gates(*source.gates, *layer);
    for (const MacePolynomial &polynomial : planned.polynomials)
      layer->polynomials.push_back(std::make_unique<Polynomial<T>>(
          polynomial, channels, static_cast<int>(plan.species.size())));
    return layer;
  }

  void pack_gates(const MaceGates &source, PackedLayer<T> &layer)
  {
    for (const MaceMatrix &matrix : source.own) layer.own.add(matrix);
    for (const MaceMatrix &matrix : source.own_gate) layer.own_gate.add(matrix);
    for (const MaceMatrix &matrix : source.mix) layer.mix.add(matrix);
    for (const MaceMatrix &matrix : source.message)
      layer.gate.push_back(std::make_unique<ChannelMatrix<T>>(matrix.values.data(), matrix.rows,
                                                              channels, channels, 1));
    for (int part = 0; part < layer.degree_paths[0]; ++part)
      for (const MaceMatrix &matrix : source.message)
        layer.gate_back.push_back(std::make_unique<ChannelMatrix<T>>(
            matrix.values.data() +
                static_cast<std::ptrdiff_t>(part) * layer.edge_channels * channels,
            channels, layer.edge_channels, 1, channels));
  }

  /// What goes along edges in layer 0, what is added to n and z there, and to what leaves it: all
  /// depend on species alone.
  void embed()
  {
    const MaceLayer &layer = network.layers[0];
    const std::size_t edge_stride = layers[0]->edge_stride, own_size = ungated_size();
    embedded.reserve(nspecies * edge_stride);
    skipped.reserve(static_cast<std::size_t>(nspecies) * stride);
    own.reserve(nspecies * own_size);
    for (Buffer<T> *const buffer : {&embedded, &skipped, &own}) buffer->fill(0);
    for (int s = 0; s < nspecies; ++s) {
      const double *const x = &network.embedding[static_cast<std::size_t>(s) * channels];
      const std::vector<double> sent = times(x, layer.up[0]);
      to_row(sent, &embedded[s * edge_stride]);
      if (layers[0]->residual)
        to_row(times(x, layer.skip_of(0, s)), &skipped[static_cast<std::size_t>(s) * stride]);
      if (!layer.gates) continue;
      to_row(times(sent.data(), layer.gates->own[0]), &own[s * own_size]);
      for (int l = 1; l <= network.largest; ++l)
        to_row(times(sent.data(), layer.gates->own_gate[l - 1]),
               &own[s * own_size + static_cast<std::size_t>(ncomponents + l - 1) * stride]);
    }
  }

  static std::vector<double> times(const double *x, const MaceMatrix &matrix)
  {
    std::vector<double> result(matrix.columns, 0.0);
    for (int k = 0; k < matrix.rows; ++k)
      for (int o = 0; o < matrix.columns; ++o)
        result[o] += x[k] * matrix.values[static_cast<std::size_t>(k) * matrix.columns + o];
    return result;
  }
  static void to_row(const std::vector<double> &values, T *row)
  {
    for (std::size_t k = 0; k < values.size(); ++k) row[k] = static_cast<T>(values[k]);
  }
};

}    // namespace pwmlff::PWMLFF_ISA::mace
