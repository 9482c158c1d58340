// SPDX-License-Identifier: GPL-2.0-or-later

#include "mace_backend.h"

#include "../../dp/pair_terms.h"
#include "channels.h"
#include "edges.h"
#include "polynomials.h"
#include "radial.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA {
namespace mace {
namespace {

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
template <class T> struct Layer {
  int into, out, degree_paths[MACE_MOST_DEGREE + 1];
  int ncomponents;    // of A
  int columns;        // of radial functions
  bool density, residual;
  const MaceLayer *source;
  std::vector<Buffer<double>> radial;    // weights of the net, aligned: four percent of `exact`
  std::vector<std::unique_ptr<const Path<T>>> paths;
  std::vector<std::unique_ptr<const Polynomial<T>>> polynomials;
  Mixing<T> up, product, skip;
  Matrices<T> message;         // [degree, species or one]
  Matrices<T> message_back;    // [path, species or one]
  int messages;
  std::vector<std::unique_ptr<RadialTable<T>>> tables;    // [pairs], or empty
  Buffer<T> sent;    // [nrows, components that enter, stride] features as they go along edges
};

/// What one thread works in.
template <class T> struct Scratch {
  Scratch(const MaceNetwork &network, const std::vector<std::unique_ptr<Layer<T>>> &layers,
          int stride) :
      directions(network.largest)
  {
    for (const auto &layer : layers)
      functions.push_back(std::make_unique<RadialFunctions>(network, *layer->source, layer->radial,
                                                            stride, layer->columns));
  }
  std::vector<std::unique_ptr<RadialFunctions>> functions;    // [layers]
  Directions<T> directions;
  Buffer<const T *> feature;
  Buffer<T *> dfeature;
  Buffer<T> value, slope;    // [edges, columns]
  Buffer<T> coupling, dcoupling;
  Buffer<T> sums, dsums;                // [MACE_BLOCK, components of A, stride]
  Buffer<T> dmessage;                   // [MACE_BLOCK, components, stride]
  Buffer<T> contracted, dcontracted;    // likewise, of B
  Buffer<double> hidden;                // of readouts
  Buffer<T> dfeatures;                  // [nrows, components, stride] of this part
};

/// A row of features of each center of a block, from which to which a product goes.
template <class T> struct Rows {
  explicit Rows(int count) : count(count) {}
  int count;
  const T *from[MACE_BLOCK];
  T *to[MACE_BLOCK];
};

template <class T> class Mace : public MaceBackend {
 public:
  static constexpr int width = lanes<T>;

  Mace(const MacePlan &plan, MacePrecision precision) :
      network(plan.network),
      channels(network.channels),
      stride(round_up(channels, width)),
      ncomponents((network.largest + 1) * (network.largest + 1)),
      slot(plan.slot.size()),
      nspecies(network.nspecies())
  {
    for (std::size_t s = 0; s < plan.slot.size(); ++s) slot[s] = plan.slot[s];
    for (std::size_t t = 0; t < network.layers.size(); ++t)
      layers.push_back(pack(plan, plan.layers[t], network.layers[t]));
    if (precision != MacePrecision::exact) make_tables(plan);
    embed();
  }

  std::size_t table_bytes() const override
  {
    std::size_t bytes = 0;
    for (const auto &layer : layers)
      for (const auto &table : layer->tables)
        if (table) bytes += table->bytes();
    return bytes;
  }

  int most_sent() const override
  {
    std::size_t most = 0;
    for (std::size_t t = 1; t < layers.size(); ++t)
      if (size_of(layers[t]->into) > most) most = size_of(layers[t]->into);
    return static_cast<int>(most);
  }

  void begin(const Input &input_, const MaceBlock *blocks_, const int *first_, int nparts_,
             double *atom_energy_) override
  {
    input = &input_;
    blocks = blocks_;
    first_block = first_;
    nparts = nparts_;
    atom_energy = atom_energy_;
    while (static_cast<int>(scratch.size()) < nparts)
      scratch.push_back(std::make_unique<Scratch<T>>(network, layers, stride));
    find_edges();
    const auto ncenters = static_cast<std::size_t>(input->ncenters);
    const auto nrows = static_cast<std::size_t>(input->nrows);
    std::size_t messages = 0, features = 0;
    for (std::size_t t = 0; t < layers.size(); ++t) {
      messages += ncenters * ncomponents * stride;
      features += ncenters * size_of(layers[t]->out);
      if (t > 0) layers[t]->sent.reserve(nrows * size_of(layers[t]->into));
    }
    message.reserve(messages);
    inverse_density.reserve(ncenters * layers.size());
    feature.reserve(features);
    dfeature.reserve(features);
    dfeature.fill(0);
    edge_gradient.reserve(3 * static_cast<std::size_t>(first_edge[input->ncenters]));
    edge_gradient.fill(0.0);
  }

  void features(int t, int part) override
  {
    Layer<T> &layer = *layers[t];
    const std::size_t size = size_of(layer.into);
    for_blocks(part, [&](const MaceBlock &block) {
      Rows<T> rows(block.count);
      for (int b = 0; b < block.count; ++b) {
        rows.from[b] = feature_of(t - 1, block.center[b]);
        rows.to[b] = layer.sent.get() + block.center[b] * size;
        clear(rows.to[b], size);
      }
      mix(layer.up.there, layer.into, rows);
    });
  }

  void share(int t) override
  {
    if (!input->exchange) return;
    input->exchange->forward(layers[t]->sent.get(), static_cast<int>(size_of(layers[t]->into)));
  }

  void forward(int t, int part) override
  {
    const bool last = t + 1 == static_cast<int>(layers.size());
    if (last && t > 0) begin_dfeatures(t, part);
    for_blocks(part, [&](const MaceBlock &block) {
      Scratch<T> &work = *scratch[part];
      sum_edges(t, block, work);
      finish_forward(t, block, work);
      if (last) go_back(t, block, work);
    });
  }

  void gather(int t) override
  {
    const std::size_t size = size_of(layers[t]->into) * static_cast<std::size_t>(input->nrows);
    T *const all = scratch[0]->dfeatures.get();
    for (int part = 1; part < nparts; ++part) {
      const T *const one = scratch[part]->dfeatures.get();
      for (std::size_t k = 0; k < size; ++k) all[k] += one[k];
    }
    if (input->exchange) input->exchange->reverse(all, static_cast<int>(size_of(layers[t]->into)));
  }

  void receive(int t, int part) override
  {
    const Layer<T> &layer = *layers[t];
    const std::size_t size = size_of(layer.into);
    for_blocks(part, [&](const MaceBlock &block) {
      Rows<T> rows(block.count);
      for (int b = 0; b < block.count; ++b) {
        rows.from[b] = scratch[0]->dfeatures.get() + block.center[b] * size;
        rows.to[b] = dfeature_of(t - 1, block.center[b]);
      }
      mix(layer.up.back, layer.into, rows);
    });
  }

  void backward(int t, int part) override
  {
    if (t > 0) begin_dfeatures(t, part);
    for_blocks(part, [&](const MaceBlock &block) { go_back(t, block, *scratch[part]); });
  }

  void spread(int part, MaceSums &sums) override
  {
    struct Alone {
      void add(double *target, double value) const { *target += value; }
    };
    for_blocks(part, [&](const MaceBlock &block) {
      for (int b = 0; b < block.count; ++b) {
        const std::ptrdiff_t i = block.center[b];
        for (int e = first_edge[i]; e < first_edge[i + 1]; ++e) {
          const double *const g = &edge_gradient[3 * static_cast<std::size_t>(e)];
          const double *const d = &rij[3 * static_cast<std::size_t>(e)];
          const std::ptrdiff_t j = row[e];
          double force[3];    // on the neighbor
          for (int c = 0; c < 3; ++c) {
            force[c] = -g[c];
            sums.force[3 * i + c] += g[c];
            sums.force[3 * j + c] -= g[c];
          }
          for (int a = 0; a < 3; ++a)
            for (int c = 0; c < 3; ++c) sums.virial[3 * a + c] += d[a] * force[c];
          if (sums.atom_virial || sums.centroid_virial)
            spread_virial(Alone{}, d, force, i, j, sums.atom_virial, sums.centroid_virial);
        }
      }
    });
  }

 private:
  std::size_t size_of(int degree) const
  {
    return static_cast<std::size_t>(degree + 1) * (degree + 1) * stride;
  }
  T *message_of(int t, int center)
  {
    return message.get() +
           (static_cast<std::size_t>(t) * input->ncenters + center) * ncomponents * stride;
  }
  /// Features that leave layer t, and dE by them.
  T *feature_of(int t, int center) { return feature.get() + feature_place(t, center); }
  T *dfeature_of(int t, int center) { return dfeature.get() + feature_place(t, center); }
  std::size_t feature_place(int t, int center) const
  {
    std::size_t place = 0;
    for (int s = 0; s < t; ++s) place += size_of(layers[s]->out) * input->ncenters;
    return place + size_of(layers[t]->out) * center;
  }

  template <class Work> void for_blocks(int part, const Work &work)
  {
    for (int b = first_block[part]; b < first_block[part + 1]; ++b) work(blocks[b]);
  }

  /* ---- packing ---- */

  std::unique_ptr<Layer<T>> pack(const MacePlan &plan, const MaceLayerPlan &planned,
                                 const MaceLayer &source)
  {
    auto layer = std::make_unique<Layer<T>>();
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
    layer->columns = static_cast<int>(source.paths.size()) * stride + (layer->density ? width : 0);
    for (const MaceMatrix &matrix : source.radial) {
      layer->radial.emplace_back(matrix.values.size());
      for (std::size_t k = 0; k < matrix.values.size(); ++k)
        layer->radial.back()[k] = matrix.values[k];
    }
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

  void make_tables(const MacePlan &plan)
  {
    const RadialTolerance tolerance =
        sizeof(T) == 8 ? RadialTolerance{1e-10, 1e-8} : RadialTolerance{1e-6, 1e-5};
    for (const auto &layer : layers) {
      RadialFunctions functions(network, *layer->source, layer->radial, stride, layer->columns);
      layer->tables.resize(network.agnesi.empty() ? 1 : nspecies * nspecies);
      for (const int a : plan.species)
        for (const int b : plan.species) {
          if (b > a || (network.agnesi.empty() && layer->tables[0])) continue;
          layer->tables[table_of(a, b)] = std::make_unique<RadialTable<T>>(
              functions, radius_of(a, b), network.cutoff, layer->columns, tolerance);
        }
    }
  }

  int table_of(int a, int b) const
  {
    if (network.agnesi.empty()) return 0;
    return a > b ? a * nspecies + b : b * nspecies + a;
  }
  double radius_of(int a, int b) const
  {
    return network.agnesi.empty() ? 1.0 : 0.5 * (network.radii[a] + network.radii[b]);
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

  /* ---- edges ---- */

  void find_edges()
  {
    const int ncenters = input->ncenters;
    first_edge.reserve(static_cast<std::size_t>(ncenters) + 1);
    first_edge[0] = 0;
    const std::size_t most =
        ncenters > 0 ? static_cast<std::size_t>(input->first[ncenters * nspecies]) : 0;
    row.reserve(most);
    rij.reserve(3 * most);
    const double cutsq = network.cutoff * network.cutoff;
    int n = 0;
    for (int i = 0; i < ncenters; ++i) {
      const double *const xi = input->x + 3 * static_cast<std::ptrdiff_t>(i);
      const int *const of_center = input->first + static_cast<std::ptrdiff_t>(i) * nspecies;
      for (int k = of_center[0]; k < of_center[nspecies]; ++k) {
        const double *const xj = input->x + 3 * static_cast<std::ptrdiff_t>(input->candidate[k]);
        double *const d = &rij[3 * static_cast<std::size_t>(n)];
        double square = 0.0;
        for (int c = 0; c < 3; ++c) {
          d[c] = xj[c] - xi[c];
          square += d[c] * d[c];
        }
        row[n] = input->candidate[k];
        n += square < cutsq;
      }
      first_edge[i + 1] = n;
    }
  }

  /// Directions, radial functions and the neighbors' features of a center.
  void take_edges(int t, int center, Scratch<T> &work, bool slopes)
  {
    const Layer<T> &layer = *layers[t];
    const int begin = first_edge[center], n = first_edge[center + 1] - begin;
    work.directions.take(rij.get() + 3 * static_cast<std::ptrdiff_t>(begin), n);
    const auto room = static_cast<std::size_t>(n);
    work.feature.reserve(room);
    work.value.reserve(room * layer.columns);
    if (slopes) work.slope.reserve(room * layer.columns);
    const std::size_t size = size_of(layer.into);
    for (int e = 0; e < n; ++e) {
      const int j = row[begin + e];
      work.feature[e] =
          t > 0 ? layer.sent.get() + j * size
                : embedded.get() + static_cast<std::ptrdiff_t>(input->species[j]) * stride;
      T *const value = &work.value[static_cast<std::size_t>(e) * layer.columns];
      T *const slope = slopes ? &work.slope[static_cast<std::size_t>(e) * layer.columns] : nullptr;
      const double r = work.directions.r[e];
      const int a = input->species[center], b = input->species[j];
      if (!layer.tables.empty()) {
        layer.tables[table_of(a, b)]->evaluate(*work.functions[t], r, value, slope);
        continue;
      }
      work.functions[t]->evaluate(r, radius_of(a, b));
      work.functions[t]->copy(value, slope);
    }
  }

  PathEdges<T> edges_of(const Path<T> &path, std::size_t number, const Layer<T> &layer,
                        Scratch<T> &work, bool slopes)
  {
    const int size = (2 * path.feature + 1) * (2 * path.degree + 1);
    work.coupling.reserve(static_cast<std::size_t>(work.directions.nvectors) * size * width);
    work.directions.couple(path.coupled, size, work.coupling.get());
    return {work.directions.n,
            work.coupling.get(),
            work.feature.get(),
            work.value.get() + number * stride,
            slopes ? work.slope.get() + number * stride : nullptr,
            layer.columns,
            stride};
  }

  /// The features of neighbors from degree `into` on to those of the next one in a path.
  void shift_features(Scratch<T> &work, int from, int to, bool derivatives) const
  {
    const std::ptrdiff_t by = (static_cast<std::ptrdiff_t>(to) * to - from * from) * stride;
    if (by == 0) return;
    for (int e = 0; e < work.directions.n; ++e) {
      work.feature[e] += by;
      if (derivatives) work.dfeature[e] += by;
    }
  }

  /// A and the density of all centers of a block.
  void sum_edges(int t, const MaceBlock &block, Scratch<T> &work)
  {
    const Layer<T> &layer = *layers[t];
    const auto size = static_cast<std::size_t>(layer.ncomponents) * stride;
    work.sums.reserve(MACE_BLOCK * size);
    for (int b = 0; b < block.count; ++b) {
      const int center = block.center[b];
      take_edges(t, center, work, false);
      int degree = 0;
      for (std::size_t p = 0; p < layer.paths.size(); ++p) {
        const Path<T> &path = *layer.paths[p];
        shift_features(work, degree, path.feature, false);
        degree = path.feature;
        const PathEdges<T> edges = edges_of(path, p, layer, work, false);
        path.sums.sum(edges, work.sums.get() + b * size + path.first * stride);
      }
      double density = 0.0;
      for (int e = 0; layer.density && e < work.directions.n; ++e)
        density += static_cast<double>(
            work.value[static_cast<std::size_t>(e) * layer.columns + layer.paths.size() * stride]);
      inverse_density[static_cast<std::size_t>(t) * input->ncenters + center] =
          1.0 / (1.0 + density);
    }
  }

  /* ---- atoms ---- */

  /// to += from times the matrices of degrees 0 to `degree`; there may be several for each degree.
  void mix(const Matrices<T> &matrices, int degree, const Rows<T> &rows, int nth = 0,
           int per_degree = 1)
  {
    for (int l = 0; l <= degree; ++l) {
      const T *x[most_rows];
      T *y[most_rows];
      int n = 0;
      for (int b = 0; b < rows.count; ++b)
        for (int m = l * l; m < (l + 1) * (l + 1); ++m, ++n) {
          x[n] = rows.from[b] + static_cast<std::ptrdiff_t>(m) * stride;
          y[n] = rows.to[b] + static_cast<std::ptrdiff_t>(m) * stride;
        }
      matrices[l * per_degree + nth]->add(n, x, y);
    }
  }

  /// Messages of a block from its sums over edges, or (back) the other way round.
  void mix_messages(const Layer<T> &layer, const MaceBlock &block, T *sums, T *const *messages,
                    bool back)
  {
    const int species = layer.messages > 1 ? block.species : 0;
    for (std::size_t p = 0; p < layer.paths.size(); ++p) {
      const Path<T> &path = *layer.paths[p];
      T *a[most_rows], *m[most_rows];
      int n = 0;
      for (int b = 0; b < block.count; ++b)
        for (int k = 0; k <= 2 * path.degree; ++k, ++n) {
          a[n] =
              sums + (static_cast<std::ptrdiff_t>(b) * layer.ncomponents + path.first + k) * stride;
          m[n] =
              messages[b] + (static_cast<std::ptrdiff_t>(path.degree) * path.degree + k) * stride;
        }
      if (back) layer.message_back[p * layer.messages + species]->add(n, m, a);
      else
        layer.message[path.degree * layer.messages + species]->add(n, a, m, path.part * channels,
                                                                   channels);
    }
  }

  static void clear(T *values, std::size_t n)
  {
    for (std::size_t k = 0; k < n; ++k) values[k] = 0;
  }

  /// The messages of a block, a vector of channels of all its centers; zero beyond its last.
  void load_messages(int t, const MaceBlock &block, int vector, Vec<T> *m)
  {
    for (int b = 0; b < MACE_BLOCK; ++b) {
      const T *const from = b < block.count ? message_of(t, block.center[b]) : nullptr;
      for (int c = 0; c < ncomponents; ++c)
        m[c * MACE_BLOCK + b] =
            from ? load(from + static_cast<std::ptrdiff_t>(c) * stride + vector * width) : Vec<T>{};
    }
  }

  static constexpr int most_rows = MACE_BLOCK * (2 * MACE_MOST_DEGREE + 1);
  static constexpr int most_components = (MACE_MOST_DEGREE + 1) * (MACE_MOST_DEGREE + 1);

  void finish_forward(int t, const MaceBlock &block, Scratch<T> &work)
  {
    const Layer<T> &layer = *layers[t];
    const std::size_t size = size_of(layer.out);
    T *messages[MACE_BLOCK];
    for (int b = 0; b < block.count; ++b) {
      messages[b] = message_of(t, block.center[b]);
      clear(messages[b], static_cast<std::size_t>(ncomponents) * stride);
    }
    mix_messages(layer, block, work.sums.get(), messages, false);
    for (int b = 0; layer.density && b < block.count; ++b) {
      const T factor = static_cast<T>(density_factor(t, block.center[b]));
      for (int k = 0; k < ncomponents * stride; ++k) messages[b][k] *= factor;
    }
    work.contracted.reserve(MACE_BLOCK * size);
    const int slot_of = slot[block.species];
    Vec<T> m[most_components * MACE_BLOCK], value[MACE_BLOCK];
    for (int v = 0; v < stride / width; ++v) {
      load_messages(t, block, v, m);
      for (std::size_t c = 0; c < layer.polynomials.size(); ++c) {
        layer.polynomials[c]->evaluate(slot_of, v, m, value);
        for (int b = 0; b < block.count; ++b)
          store(work.contracted.get() + b * size + c * stride + v * width, value[b]);
      }
    }
    Rows<T> rows(block.count);
    for (int b = 0; b < block.count; ++b) {
      rows.from[b] = work.contracted.get() + b * size;
      rows.to[b] = feature_of(t, block.center[b]);
      clear(rows.to[b], size);
      for (int k = 0; t == 0 && k < stride; ++k)
        rows.to[b][k] = skipped[static_cast<std::size_t>(block.species) * stride + k];
    }
    mix(layer.product.there, layer.out, rows);
    if (t > 0 && layer.residual) {
      for (int b = 0; b < block.count; ++b) rows.from[b] = feature_of(t - 1, block.center[b]);
      mix(layer.skip.there, layer.into < layer.out ? layer.into : layer.out, rows, block.species,
          nspecies);
    }
    for (int b = 0; b < block.count; ++b) read_out(t, block.center[b], work);
  }

  double density_factor(int t, int center) const
  {
    return inverse_density[static_cast<std::size_t>(t) * input->ncenters + center];
  }

  /// The energy that a layer's readout gives, and dE by the features.
  void read_out(int t, int center, Scratch<T> &work)
  {
    const MaceLayer &source = *layers[t]->source;
    const T *const h = feature_of(t, center);
    T *const dh = dfeature_of(t, center);
    double energy = 0.0;
    if (!source.readout.empty())
      for (int k = 0; k < channels; ++k) {
        energy += static_cast<double>(h[k]) * source.readout[k];
        dh[k] += static_cast<T>(network.scale * source.readout[k]);
      }
    const int nhidden = source.readout_first.columns;
    if (nhidden > 0) {
      work.hidden.reserve(nhidden);
      double *const z = work.hidden.get();
      const double *const first = source.readout_first.values.data();
      for (int n = 0; n < nhidden; ++n) z[n] = 0.0;
      for (int k = 0; k < channels; ++k)
        for (int n = 0; n < nhidden; ++n)
          z[n] += static_cast<double>(h[k]) * first[static_cast<std::ptrdiff_t>(k) * nhidden + n];
      for (int n = 0; n < nhidden; ++n) {
        const double s = 1.0 / (1.0 + __builtin_exp(-z[n])), last = source.readout_last[n];
        energy += last * z[n] * s;
        z[n] = network.scale * last * s * (1.0 + z[n] * (1.0 - s));
      }
      for (int k = 0; k < channels; ++k) {
        double sum = 0.0;
        for (int n = 0; n < nhidden; ++n)
          sum += first[static_cast<std::ptrdiff_t>(k) * nhidden + n] * z[n];
        dh[k] += static_cast<T>(sum);
      }
    }
    atom_energy[center] += network.scale * energy;
  }

  /// From derivatives by the features that leave a layer to those by its edges and by what enters.
  void go_back(int t, const MaceBlock &block, Scratch<T> &work)
  {
    const Layer<T> &layer = *layers[t];
    const std::size_t size = size_of(layer.out),
                      message_size = static_cast<std::size_t>(ncomponents) * stride,
                      sums_size = static_cast<std::size_t>(layer.ncomponents) * stride;
    work.dcontracted.reserve(MACE_BLOCK * size);
    work.dmessage.reserve(MACE_BLOCK * message_size);
    work.dsums.reserve(MACE_BLOCK * sums_size);
    clear(work.dcontracted.get(), MACE_BLOCK * size);
    clear(work.dmessage.get(), MACE_BLOCK * message_size);
    clear(work.dsums.get(), MACE_BLOCK * sums_size);
    T *dmessages[MACE_BLOCK];
    Rows<T> rows(block.count);
    for (int b = 0; b < block.count; ++b) {
      dmessages[b] = work.dmessage.get() + b * message_size;
      rows.from[b] = dfeature_of(t, block.center[b]);
      rows.to[b] = work.dcontracted.get() + b * size;
    }
    mix(layer.product.back, layer.out, rows);
    if (t > 0 && layer.residual) {
      for (int b = 0; b < block.count; ++b) rows.to[b] = dfeature_of(t - 1, block.center[b]);
      mix(layer.skip.back, layer.into < layer.out ? layer.into : layer.out, rows, block.species,
          nspecies);
    }

    Vec<T> m[most_components * MACE_BLOCK], dm[most_components * MACE_BLOCK], gradient[MACE_BLOCK];
    for (int v = 0; v < stride / width; ++v) {
      load_messages(t, block, v, m);
      for (int k = 0; k < ncomponents * MACE_BLOCK; ++k) dm[k] = Vec<T>{};
      for (std::size_t c = 0; c < layer.polynomials.size(); ++c) {
        for (int b = 0; b < MACE_BLOCK; ++b)
          gradient[b] = load(work.dcontracted.get() + b * size + c * stride + v * width);
        layer.polynomials[c]->back(slot[block.species], v, m, gradient, dm);
      }
      for (int b = 0; b < block.count; ++b)
        for (int c = 0; c < ncomponents; ++c)
          store(dmessages[b] + static_cast<std::ptrdiff_t>(c) * stride + v * width,
                dm[c * MACE_BLOCK + b]);
    }
    double ddensity[MACE_BLOCK] = {};
    for (int b = 0; layer.density && b < block.count; ++b) {
      const T *const message = message_of(t, block.center[b]);
      const double factor = density_factor(t, block.center[b]);
      double sum = 0.0;
      for (std::size_t k = 0; k < message_size; ++k) {
        // As long as message. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
        sum += static_cast<double>(dmessages[b][k]) * static_cast<double>(message[k]);
        dmessages[b][k] *= static_cast<T>(factor);
      }
      ddensity[b] = -sum * factor;
    }
    mix_messages(layer, block, work.dsums.get(), dmessages, true);
    for (int b = 0; b < block.count; ++b)
      edges_back(t, block.center[b], work, work.dsums.get() + b * sums_size, ddensity[b]);
  }

  void edges_back(int t, int center, Scratch<T> &work, const T *dsums, double ddensity)
  {
    const Layer<T> &layer = *layers[t];
    take_edges(t, center, work, true);
    Directions<T> &directions = work.directions;
    directions.begin_back();
    const int begin = first_edge[center];
    const std::size_t size = size_of(layer.into);
    work.dfeature.reserve(directions.n);
    for (int e = 0; t > 0 && e < directions.n; ++e)
      work.dfeature[e] = work.dfeatures.get() + row[begin + e] * size;
    int degree = 0;
    for (std::size_t p = 0; p < layer.paths.size(); ++p) {
      const Path<T> &path = *layer.paths[p];
      shift_features(work, degree, path.feature, t > 0);
      degree = path.feature;
      const PathEdges<T> edges = edges_of(path, p, layer, work, true);
      const int ncouplings = (2 * path.feature + 1) * (2 * path.degree + 1);
      work.dcoupling.reserve(static_cast<std::size_t>(directions.nvectors) * ncouplings * width);
      for (int k = 0; k < ncouplings * width; ++k)    // lanes beyond the last edge
        if (directions.nvectors > 0)
          work.dcoupling[static_cast<std::size_t>(directions.nvectors - 1) * ncouplings * width +
                         k] = 0;
      path.sums.back(edges, dsums + static_cast<std::ptrdiff_t>(path.first) * stride,
                     work.dcoupling.get(), t > 0 ? work.dfeature.get() : nullptr,
                     directions.radial.get());
      directions.couple_back(path.coupled, ncouplings, work.dcoupling.get());
    }
    const bool repel = t == 0 && !network.zbl.empty();
    for (int e = 0; e < directions.n; ++e) {
      if (layer.density)
        directions.radial[e] +=
            ddensity * static_cast<double>(work.slope[static_cast<std::size_t>(e) * layer.columns +
                                                      layer.paths.size() * stride]);
      if (repel)
        directions.radial[e] += repulsion(input->species[center], input->species[row[begin + e]],
                                          directions.r[e], atom_energy[center]);
    }
    directions.back(&edge_gradient[3 * static_cast<std::size_t>(begin)]);
  }

  /// Adds half of the energy of a pair, and returns its derivative.
  double repulsion(int a, int b, double r, double &energy) const
  {
    constexpr double decay[4] = {3.2, 0.9423, 0.4028, 0.2016};
    const std::ptrdiff_t pair = static_cast<std::ptrdiff_t>(a) * nspecies + b;
    const double reach = network.zbl_reach[pair];
    if (r >= reach) return 0.0;
    const double length = network.zbl_length[pair], strength = network.zbl_strength[pair];
    double phi = 0.0, dphi = 0.0;
    for (int k = 0; k < 4; ++k) {
      const double term = network.zbl[1 + k] * __builtin_exp(-decay[k] * r / length);
      phi += term;
      dphi -= decay[k] / length * term;
    }
    const double v = strength / r * phi, dv = strength / r * (dphi - phi / r);
    double df = 0.0;
    const double f = polynomial_cutoff(network.zbl[0], r / reach, df);
    df /= reach;
    energy += 0.5 * network.scale * v * f;
    return 0.5 * network.scale * (dv * f + v * df);
  }

  void begin_dfeatures(int t, int part)
  {
    const std::size_t n = size_of(layers[t]->into) * static_cast<std::size_t>(input->nrows);
    scratch[part]->dfeatures.reserve(n);
    clear(scratch[part]->dfeatures.get(), n);
  }

  const MaceNetwork &network;
  const int channels, stride, ncomponents;    // components: of messages
  Buffer<int> slot;
  const int nspecies;
  std::vector<std::unique_ptr<Layer<T>>> layers;
  Buffer<T> embedded, skipped;    // [nspecies, stride]

  // Of an evaluation.
  const Input *input = nullptr;
  const MaceBlock *blocks = nullptr;
  const int *first_block = nullptr;
  int nparts = 0;
  double *atom_energy = nullptr;
  std::vector<std::unique_ptr<Scratch<T>>> scratch;    // [nparts so far]
  Buffer<int> first_edge, row;                         // [ncenters + 1], [edges]
  Buffer<double> rij, edge_gradient;                   // [edges, 3]
  Buffer<T> message;                                   // [layers, ncenters, components, stride]
  Buffer<double> inverse_density;                      // [layers, ncenters]
  Buffer<T> feature, dfeature;    // [layers][ncenters, components that leave, stride]
};

}    // namespace
}    // namespace mace

MaceBackend *make_mace_backend(const MacePlan &plan, MacePrecision precision)
{
  if (precision == MacePrecision::single) return new mace::Mace<float>(plan, precision);
  return new mace::Mace<double>(plan, precision);
}

}    // namespace pwmlff::PWMLFF_ISA
