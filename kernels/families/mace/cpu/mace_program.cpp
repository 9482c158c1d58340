// SPDX-License-Identifier: GPL-2.0-or-later

// The MACE engine for one instruction set; compiled once for each (simd.h, CMakeLists.txt).
//
// With n layers there are 2n-1 phases: forward through layers 0 to n-1, the last with its way back,
// and back through layers n-2 to 0. Between them rows get what their centers send to the next
// layer, and give back the derivatives by it.

#include "mace_program.h"

#include "../../../core/virial_terms.h"
#include "packed.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA {
namespace mace {
namespace {

/// A row of features of each center of a block, from which to which a product goes.
template <class T> struct Rows {
  /// @param from_stride, to_stride  padded channels of each component
  Rows(int count, int from_stride, int to_stride) :
      count(count), from_stride(from_stride), to_stride(to_stride)
  {
  }
  int count, from_stride, to_stride;
  const T *from[MACE_BLOCK];
  T *to[MACE_BLOCK];
};

template <class T> class MaceWorker;

template <class T> class Mace : public Program {
 public:
  Mace(const MacePlan &plan, Precision precision) :
      packed(plan, precision), sent(packed.layers.size())
  {
  }

  Worker *make_worker() override
  {
    auto *const worker = new MaceWorker<T>(*this);
    workers.push_back(worker);
    return worker;
  }
  int block_size() const override { return MACE_BLOCK; }
  double cutoff() const override { return packed.network.cutoff; }
  std::size_t table_bytes() const override { return packed.table_bytes(); }
  int nphases() const override { return 2 * nlayers() - 1; }
  int exchange_width() const override
  {
    int most = 0;
    for (int t = 1; t < nlayers(); ++t)
      if (width_of(t) > most) most = width_of(t);
    return most;
  }

  bool exchanges_single() const override { return sizeof(T) == sizeof(float); }

  void begin(const BlockPlan &plan) override
  {
    for (int t = 1; t < nlayers(); ++t)
      sent[t].reserve(static_cast<std::size_t>(plan.input->nrows) * width_of(t));
  }

  Exchange before(int phase) override
  {
    if (phase == 0) return {};
    const bool forward = phase < nlayers();
    const int t = forward ? phase : 2 * nlayers() - 1 - phase;
    rows.reserve(workers.size());
    for (std::size_t k = 0; k < workers.size(); ++k) rows[k] = workers[k]->derivatives(t);
    if (forward) rows[0] = sent[t].get();
    return {forward ? Exchange::Kind::forward : Exchange::Kind::reverse, sizeof(T) == sizeof(float),
            width_of(t), rows.get()};
  }

  int nlayers() const { return static_cast<int>(packed.layers.size()); }
  /// Of the rows that enter layer t.
  int width_of(int t) const { return static_cast<int>(packed.sent_size(*packed.layers[t])); }

  const PackedMace<T> packed;
  std::vector<Buffer<T>> sent;    // [layers] [nrows, sent_size()] along edges
  std::vector<MaceWorker<T> *> workers;

 private:
  Buffer<void *> rows;
};

template <class T> class MaceWorker : public Worker {
 public:
  static constexpr int width = lanes<T>;

  explicit MaceWorker(Mace<T> &model) :
      model(model),
      packed(model.packed),
      network(packed.network),
      layers(packed.layers),
      channels(packed.channels),
      stride(packed.stride),
      ncomponents(packed.ncomponents),
      nspecies(packed.nspecies),
      directions(network.largest)
  {
    for (const auto &layer : layers)
      functions.push_back(
          std::make_unique<RadialFunctions>(layer->radial->functions(network, *layer->source)));
  }

  void run(int phase, const BlockPlan &plan, const CenterBlock *blocks_, int nblocks_,
           PartialSums &sums) override
  {
    input = plan.input;
    atom_energy = plan.atom_energy;
    blocks = blocks_;
    nblocks = nblocks_;
    order = plan.order + (nblocks > 0 ? blocks[0].first : 0);
    if (phase == 0) begin();
    const int nlayers = model.nlayers();
    if (phase < nlayers) forward(phase);
    else backward(2 * nlayers - 2 - phase);
    if (phase + 1 == model.nphases()) spread(sums);
  }

  /// By what entered layer t, of all rows.
  T *derivatives(int t) { return dfeatures[t & 1].get(); }

 private:
  void begin()
  {
    ncenters = 0;
    for (int k = 0; k < nblocks; ++k) ncenters += blocks[k].count;
    for (int c = 0; c < ncenters; ++c)
      atom_energy[row_of(c)] = network.energy[input->species[row_of(c)]] + network.shift;
    find_edges();
    std::size_t features = 0;
    for (const auto &layer : layers) features += ncenters * packed.size_of(layer->out);
    message.reserve(layers.size() * ncenters * ncomponents * stride);
    for (const auto &layer : layers)
      if (layer->gated) ungated.reserve(layers.size() * ncenters * packed.ungated_size());
    inverse_density.reserve(layers.size() * ncenters);
    feature.reserve(features);
    dfeature.reserve(features);
    clear(dfeature.get(), features);
    const std::size_t coordinates = 3 * static_cast<std::size_t>(first_edge[ncenters]);
    edge_gradient.reserve(coordinates);
    for (std::size_t k = 0; k < coordinates; ++k) edge_gradient[k] = 0.0;
  }

  void forward(int t)
  {
    const bool last = t + 1 == model.nlayers();
    if (last) begin_dfeatures(t);
    for_blocks([&](const CenterBlock &block) {
      sum_edges(t, block);
      finish_forward(t, block);
      if (last) go_back(t, block);
    });
    if (last) return;
    // What centers send along edges to the next layer.
    const PackedLayer<T> &next = *layers[t + 1];
    const std::size_t size = packed.sent_size(next);
    for_blocks([&](const CenterBlock &block) {
      Rows<T> rows(block.count, stride, next.edge_stride);
      for (int b = 0; b < block.count; ++b) {
        rows.from[b] = feature_of(t, local(block, b));
        rows.to[b] = model.sent[t + 1].get() + row_of(local(block, b)) * size;
        clear(rows.to[b], size);
      }
      mix(next.up.there, next.into, rows);
    });
  }

  void backward(int t)
  {
    // Derivatives by the features that left this layer, from those by what was sent.
    const PackedLayer<T> &next = *layers[t + 1];
    const std::size_t size = packed.sent_size(next);
    const T *const all = model.workers[0]->derivatives(t + 1);
    for_blocks([&](const CenterBlock &block) {
      Rows<T> rows(block.count, next.edge_stride, stride);
      for (int b = 0; b < block.count; ++b) {
        rows.from[b] = all + row_of(local(block, b)) * size;
        rows.to[b] = dfeature_of(t, local(block, b));
      }
      mix(next.up.back, next.into, rows);
    });
    begin_dfeatures(t);
    for_blocks([&](const CenterBlock &block) { go_back(t, block); });
  }

  /// Forces and virials of edges.
  void spread(PartialSums &sums) const
  {
    for (int center = 0; center < ncenters; ++center) {
      const std::ptrdiff_t i = row_of(center);
      for (int e = first_edge[center]; e < first_edge[center + 1]; ++e) {
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
  }

  /// Centers of this worker are counted in the order of its blocks; the row of one.
  int row_of(int center) const { return order[center]; }
  int local(const CenterBlock &block, int b) const { return block.first - blocks[0].first + b; }

  T *message_of(int t, int center)
  {
    return message.get() + (static_cast<std::size_t>(t) * ncenters + center) * ncomponents * stride;
  }
  /// n and z of layer t, which has gates.
  T *ungated_of(int t, int center)
  {
    return ungated.get() +
           (static_cast<std::size_t>(t) * ncenters + center) * packed.ungated_size();
  }
  /// Features that leave layer t, and dE by them.
  T *feature_of(int t, int center) { return feature.get() + feature_place(t, center); }
  T *dfeature_of(int t, int center) { return dfeature.get() + feature_place(t, center); }
  std::size_t feature_place(int t, int center) const
  {
    std::size_t place = 0;
    for (int s = 0; s < t; ++s) place += packed.size_of(layers[s]->out) * ncenters;
    return place + packed.size_of(layers[t]->out) * center;
  }

  template <class Work> void for_blocks(const Work &work) const
  {
    for (int k = 0; k < nblocks; ++k) work(blocks[k]);
  }

  /* ---- edges ---- */

  void find_edges()
  {
    first_edge.reserve(static_cast<std::size_t>(ncenters) + 1);
    first_edge[0] = 0;
    std::size_t most = 0;
    for (int center = 0; center < ncenters; ++center) {
      const int *const of_center = candidates(center);
      most += of_center[nspecies] - of_center[0];
    }
    row.reserve(most);
    rij.reserve(3 * most);
    const double cutsq = network.cutoff * network.cutoff;
    int n = 0;
    for (int center = 0; center < ncenters; ++center) {
      const double *const xi = input->x + 3 * static_cast<std::ptrdiff_t>(row_of(center));
      const int *const of_center = candidates(center);
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
      first_edge[center + 1] = n;
    }
  }

  const int *candidates(int center) const
  {
    return input->first + static_cast<std::ptrdiff_t>(row_of(center)) * nspecies;
  }

  /// Directions, radial functions and the neighbors' features of a center.
  void take_edges(int t, int center, bool slopes)
  {
    const PackedLayer<T> &layer = *layers[t];
    const int begin = first_edge[center], n = first_edge[center + 1] - begin;
    directions.take(rij.get() + 3 * static_cast<std::ptrdiff_t>(begin), n);
    const auto room = static_cast<std::size_t>(n);
    neighbor_feature.reserve(room);
    radial_value.reserve(room * layer.radial->columns);
    if (slopes) radial_slope.reserve(room * layer.radial->columns);
    for (int e = 0; e < n; ++e) {
      const int j = row[begin + e];
      neighbor_feature[e] = sent_by(t, j);
      T *const value = &radial_value[static_cast<std::size_t>(e) * layer.radial->columns];
      T *const slope =
          slopes ? &radial_slope[static_cast<std::size_t>(e) * layer.radial->columns] : nullptr;
      const double r = directions.r[e];
      const int a = input->species[row_of(center)], b = input->species[j];
      if (layer.radial->has_tables()) {
        layer.radial->evaluate(network.pair_of(a, b), *functions[t], r, value, slope);
        continue;
      }
      functions[t]->evaluate(r, a, b);
      functions[t]->copy(value, slope);
    }
  }

  /// What a row sends along the edges of layer t.
  const T *sent_by(int t, int j) const
  {
    if (t > 0) return model.sent[t].get() + j * packed.sent_size(*layers[t]);
    return packed.embedded.get() +
           static_cast<std::ptrdiff_t>(input->species[j]) * layers[0]->edge_stride;
  }

  PathEdges<T> edges_of(const Path<T> &path, std::size_t number, const PackedLayer<T> &layer,
                        bool slopes)
  {
    const int size = (2 * path.feature + 1) * (2 * path.degree + 1);
    coupling.reserve(static_cast<std::size_t>(directions.nvectors) * size * width);
    directions.couple(path.coupled, size, coupling.get());
    return {directions.n,
            coupling.get(),
            neighbor_feature.get(),
            radial_value.get() + number * layer.edge_stride,
            slopes ? radial_slope.get() + number * layer.edge_stride : nullptr,
            layer.radial->columns,
            layer.edge_stride};
  }

  /// The features of neighbors from degree `into` on to those of the next one in a path.
  void shift_features(const PackedLayer<T> &layer, int from, int to, bool derivatives)
  {
    const std::ptrdiff_t by =
        (static_cast<std::ptrdiff_t>(to) * to - from * from) * layer.edge_stride;
    if (by == 0) return;
    for (int e = 0; e < directions.n; ++e) {
      neighbor_feature[e] += by;
      if (derivatives) neighbor_dfeature[e] += by;
    }
  }

  /// A and the density of all centers of a block.
  void sum_edges(int t, const CenterBlock &block)
  {
    const PackedLayer<T> &layer = *layers[t];
    const auto size = static_cast<std::size_t>(layer.ncomponents) * layer.edge_stride;
    edge_sums.reserve(MACE_BLOCK * size);
    for (int b = 0; b < block.count; ++b) {
      const int center = local(block, b);
      take_edges(t, center, false);
      int degree = 0;
      for (std::size_t p = 0; p < layer.paths.size(); ++p) {
        const Path<T> &path = *layer.paths[p];
        shift_features(layer, degree, path.feature, false);
        degree = path.feature;
        const PathEdges<T> edges = edges_of(path, p, layer, false);
        path.sums.sum(edges, edge_sums.get() + b * size + path.first * layer.edge_stride);
      }
      double density = 0.0;
      for (int e = 0; layer.density && e < directions.n; ++e)
        density +=
            static_cast<double>(radial_value[static_cast<std::size_t>(e) * layer.radial->columns +
                                             layer.paths.size() * layer.edge_stride]);
      inverse_density[static_cast<std::size_t>(t) * ncenters + center] =
          1.0 / (layer.source->divisor[0] + layer.source->divisor[1] * density);
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
          x[n] = rows.from[b] + static_cast<std::ptrdiff_t>(m) * rows.from_stride;
          y[n] = rows.to[b] + static_cast<std::ptrdiff_t>(m) * rows.to_stride;
        }
      matrices[l * per_degree + nth]->add(n, x, y);
    }
  }

  /// Messages of a block, or n and z, from its sums over edges, or (back) the other way round.
  void mix_messages(const PackedLayer<T> &layer, const CenterBlock &block, T *sums,
                    T *const *messages, bool back)
  {
    const int species = layer.messages > 1 ? block.species : 0;
    const int edge_channels = layer.edge_channels;
    for (std::size_t p = 0; p < layer.paths.size(); ++p) {
      const Path<T> &path = *layer.paths[p];
      T *a[most_rows], *m[most_rows];
      int n = 0;
      for (int b = 0; b < block.count; ++b)
        for (int k = 0; k <= 2 * path.degree; ++k, ++n) {
          a[n] = sums + (static_cast<std::ptrdiff_t>(b) * layer.ncomponents + path.first + k) *
                            layer.edge_stride;
          m[n] =
              messages[b] + (static_cast<std::ptrdiff_t>(path.degree) * path.degree + k) * stride;
        }
      if (back) layer.message_back[p * layer.messages + species]->add(n, m, a);
      else
        layer.message[path.degree * layer.messages + species]->add(
            n, a, m, path.part * edge_channels, edge_channels);
      for (int l = 0; layer.gated && path.degree == 0 && l < network.largest; ++l) {
        for (int b = 0; b < block.count; ++b) m[b] = gate_of(messages[b], l);
        if (back) layer.gate_back[path.part * network.largest + l]->add(n, m, a);
        else layer.gate[l]->add(n, a, m, path.part * edge_channels, edge_channels);
      }
    }
  }

  /// z of degree l + 1, behind n.
  T *gate_of(T *ungated_row, int l) const
  {
    return ungated_row + static_cast<std::ptrdiff_t>(ncomponents + l) * stride;
  }

  /* ---- gates ---- */

  /// Add to n and z what comes from a center's own features.
  void add_own(int t, const CenterBlock &block, T *const *ungated_rows)
  {
    const PackedLayer<T> &layer = *layers[t];
    if (t == 0) {
      const T *const own = packed.own.get() + block.species * packed.ungated_size();
      for (int b = 0; b < block.count; ++b)
        for (std::size_t k = 0; k < packed.ungated_size(); ++k) ungated_rows[b][k] += own[k];
      return;
    }
    Rows<T> rows(block.count, layer.edge_stride, stride);
    for (int b = 0; b < block.count; ++b) {
      rows.from[b] = sent_by(t, row_of(local(block, b)));
      rows.to[b] = ungated_rows[b];
    }
    mix(layer.own.there, static_cast<int>(layer.own.there.size()) - 1, rows);
    for (int l = 0; l < network.largest; ++l) {
      for (int b = 0; b < block.count; ++b) rows.to[b] = gate_of(ungated_rows[b], l);
      layer.own_gate.there[l]->add(block.count, rows.from, rows.to);
    }
  }

  /// The way back of it.
  /// @param derivatives  by n and z
  /// @param along [block.count] set to what these have in common with what was added: the sum of
  ///              the products
  void own_back(int t, const CenterBlock &block, T *const *derivatives, double *along)
  {
    const PackedLayer<T> &layer = *layers[t];
    if (t == 0) {
      const T *const own = packed.own.get() + block.species * packed.ungated_size();
      for (int b = 0; b < block.count; ++b)
        along[b] = dot(derivatives[b], own, packed.ungated_size());
      return;
    }
    const std::size_t size = packed.sent_size(layer);
    by_own.reserve(MACE_BLOCK * size);
    clear(by_own.get(), MACE_BLOCK * size);
    Rows<T> rows(block.count, stride, layer.edge_stride);
    for (int b = 0; b < block.count; ++b) {
      rows.from[b] = derivatives[b];
      rows.to[b] = by_own.get() + b * size;
    }
    mix(layer.own.back, static_cast<int>(layer.own.back.size()) - 1, rows);
    for (int l = 0; l < network.largest; ++l) {
      for (int b = 0; b < block.count; ++b) rows.from[b] = gate_of(derivatives[b], l);
      layer.own_gate.back[l]->add(block.count, rows.from, rows.to);
    }
    for (int b = 0; b < block.count; ++b) {
      const int j = row_of(local(block, b));
      along[b] = dot(rows.to[b], sent_by(t, j), size);
      T *const to = dfeatures[t % 2].get() + j * size;
      for (std::size_t k = 0; k < size; ++k) to[k] += rows.to[b][k];
    }
  }

  static double dot(const T *x, const T *y, std::size_t n)
  {
    double sum = 0.0;
    for (std::size_t k = 0; k < n; ++k)
      sum += static_cast<double>(x[k]) * static_cast<double>(y[k]);
    return sum;
  }

  /// silu(n) of degree 0 and sigmoid(z) n of the others.
  void open_gates(const T *in, T *out) const
  {
    for (int k = 0; k < stride; k += width) {
      const Vec<T> n = load(in + k);
      store(out + k, n * sigmoid<T>(n));
      for (int l = 1; l <= network.largest; ++l) {
        const Vec<T> open =
            sigmoid<T>(load(in + static_cast<std::ptrdiff_t>(ncomponents + l - 1) * stride + k));
        for (int c = l * l; c < (l + 1) * (l + 1); ++c)
          store(out + static_cast<std::ptrdiff_t>(c) * stride + k,
                open * load(in + static_cast<std::ptrdiff_t>(c) * stride + k));
      }
    }
  }

  /// Derivatives by n and z from those by what has gone through the gates.
  void gates_back(const T *in, const T *gradient, T *out) const
  {
    for (int k = 0; k < stride; k += width) {
      const Vec<T> n = load(in + k), s = sigmoid<T>(n);
      store(out + k, load(gradient + k) * s * (T(1) + n * (T(1) - s)));
      for (int l = 1; l <= network.largest; ++l) {
        const std::ptrdiff_t z = static_cast<std::ptrdiff_t>(ncomponents + l - 1) * stride + k;
        const Vec<T> open = sigmoid<T>(load(in + z));
        Vec<T> sum{};
        for (int c = l * l; c < (l + 1) * (l + 1); ++c) {
          const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(c) * stride + k;
          const Vec<T> g = load(gradient + at);
          sum += g * load(in + at);
          store(out + at, open * g);
        }
        store(out + z, sum * open * (T(1) - open));
      }
    }
  }

  static void clear(T *values, std::size_t n)
  {
    for (std::size_t k = 0; k < n; ++k) values[k] = 0;
  }

  /// The messages of a block, a vector of channels of all its centers; zero beyond its last.
  void load_messages(int t, const CenterBlock &block, int vector, Vec<T> *m)
  {
    for (int b = 0; b < MACE_BLOCK; ++b) {
      const T *const from = b < block.count ? message_of(t, local(block, b)) : nullptr;
      for (int c = 0; c < ncomponents; ++c)
        m[c * MACE_BLOCK + b] =
            from ? load(from + static_cast<std::ptrdiff_t>(c) * stride + vector * width) : Vec<T>{};
    }
  }

  static constexpr int most_rows = MACE_BLOCK * (2 * MACE_MOST_DEGREE + 1);
  static constexpr int most_components = (MACE_MOST_DEGREE + 1) * (MACE_MOST_DEGREE + 1);

  /// Numbers of what is mixed of A: a message, or n and z.
  std::size_t mixed_size(const PackedLayer<T> &layer) const
  {
    return layer.gated ? packed.ungated_size() : static_cast<std::size_t>(ncomponents) * stride;
  }
  T *mixed_of(int t, int center)
  {
    return layers[t]->gated ? ungated_of(t, center) : message_of(t, center);
  }

  void find_messages(int t, const CenterBlock &block)
  {
    const PackedLayer<T> &layer = *layers[t];
    const std::size_t size = mixed_size(layer);
    T *mixed[MACE_BLOCK];
    for (int b = 0; b < block.count; ++b) {
      mixed[b] = mixed_of(t, local(block, b));
      clear(mixed[b], size);
    }
    mix_messages(layer, block, edge_sums.get(), mixed, false);
    for (int b = 0; layer.density && b < block.count; ++b) {
      const T factor = static_cast<T>(density_factor(t, local(block, b)));
      for (std::size_t k = 0; k < size; ++k) mixed[b][k] *= factor;
    }
    if (!layer.gated) return;
    add_own(t, block, mixed);
    const std::size_t message_size = static_cast<std::size_t>(ncomponents) * stride;
    opened.reserve(MACE_BLOCK * message_size);
    Rows<T> rows(block.count, stride, stride);
    for (int b = 0; b < block.count; ++b) {
      open_gates(mixed[b], opened.get() + b * message_size);
      rows.from[b] = opened.get() + b * message_size;
      rows.to[b] = message_of(t, local(block, b));
      clear(rows.to[b], message_size);
    }
    mix(layer.mix.there, network.largest, rows);
  }

  void finish_forward(int t, const CenterBlock &block)
  {
    const PackedLayer<T> &layer = *layers[t];
    const std::size_t size = packed.size_of(layer.out);
    find_messages(t, block);
    contracted.reserve(MACE_BLOCK * size);
    const int slot_of = packed.slot[block.species];
    Vec<T> m[most_components * MACE_BLOCK], value[MACE_BLOCK];
    for (int v = 0; v < stride / width; ++v) {
      load_messages(t, block, v, m);
      for (std::size_t c = 0; c < layer.polynomials.size(); ++c) {
        layer.polynomials[c]->evaluate(slot_of, v, m, value);
        for (int b = 0; b < block.count; ++b)
          store(contracted.get() + b * size + c * stride + v * width, value[b]);
      }
    }
    Rows<T> rows(block.count, stride, stride);
    for (int b = 0; b < block.count; ++b) {
      rows.from[b] = contracted.get() + b * size;
      rows.to[b] = feature_of(t, local(block, b));
      clear(rows.to[b], size);
      for (int k = 0; t == 0 && k < stride; ++k)
        rows.to[b][k] = packed.skipped[static_cast<std::size_t>(block.species) * stride + k];
    }
    mix(layer.product.there, layer.out, rows);
    if (t > 0 && layer.residual) {
      for (int b = 0; b < block.count; ++b) rows.from[b] = feature_of(t - 1, local(block, b));
      mix(layer.skip.there, layer.into < layer.out ? layer.into : layer.out, rows,
          layer.skips > 1 ? block.species : 0, layer.skips);
    }
    for (int b = 0; b < block.count; ++b) read_out(t, local(block, b));
  }

  double density_factor(int t, int center) const
  {
    return inverse_density[static_cast<std::size_t>(t) * ncenters + center];
  }

  /// The energy that a layer's readout gives, and dE by the features.
  void read_out(int t, int center)
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
      hidden.reserve(nhidden);
      double *const z = hidden.get();
      const double *const first = source.readout_first.values.data();
      for (int n = 0; n < nhidden; ++n) z[n] = 0.0;
      for (int k = 0; k < channels; ++k)
        for (int n = 0; n < nhidden; ++n)
          z[n] += static_cast<double>(h[k]) * first[static_cast<std::ptrdiff_t>(k) * nhidden + n];
      energy += read_hidden(source, nhidden, z);
      for (int k = 0; k < channels; ++k) {
        double sum = 0.0;
        for (int n = 0; n < nhidden; ++n)
          sum += first[static_cast<std::ptrdiff_t>(k) * nhidden + n] * z[n];
        dh[k] += static_cast<T>(sum);
      }
    }
    atom_energy[row_of(center)] += network.scale * energy;
  }

  /// The energy of what enters hidden layers; derivatives by it take its place.
  double read_hidden(const MaceLayer &source, int nhidden, double *z)
  {
    const bool middle = !source.readout_bias.empty();
    middle_of_readout.reserve(3 * static_cast<std::size_t>(nhidden));
    double *const slope = middle_of_readout.get(), *const x = slope + nhidden,
                  *const dx = x + nhidden;
    double energy = 0.0;
    for (int n = 0; n < nhidden; ++n) {
      x[n] = silu(z[n], slope[n]);
      dx[n] = middle ? 0.0 : source.readout_last[n];
      if (!middle) energy += source.readout_last[n] * x[n];
    }
    for (int m = 0; middle && m < nhidden; ++m) {
      double y = source.readout_bias[m], slope_of_y = 0.0;
      const double *const column = &source.readout_mid.values[m];
      for (int n = 0; n < nhidden; ++n)
        y += x[n] * column[static_cast<std::ptrdiff_t>(n) * nhidden];
      energy += source.readout_last[m] * silu(y, slope_of_y);
      for (int n = 0; n < nhidden; ++n)
        dx[n] +=
            source.readout_last[m] * slope_of_y * column[static_cast<std::ptrdiff_t>(n) * nhidden];
    }
    for (int n = 0; n < nhidden; ++n) z[n] = network.scale * dx[n] * slope[n];
    return energy;
  }

  /// From derivatives by the features that leave a layer to those by its edges and by what enters.
  void go_back(int t, const CenterBlock &block)
  {
    const PackedLayer<T> &layer = *layers[t];
    const std::size_t size = packed.size_of(layer.out),
                      message_size = static_cast<std::size_t>(ncomponents) * stride,
                      sums_size = static_cast<std::size_t>(layer.ncomponents) * layer.edge_stride;
    dcontracted.reserve(MACE_BLOCK * size);
    dmessage.reserve(MACE_BLOCK * message_size);
    dedge_sums.reserve(MACE_BLOCK * sums_size);
    clear(dcontracted.get(), MACE_BLOCK * size);
    clear(dmessage.get(), MACE_BLOCK * message_size);
    clear(dedge_sums.get(), MACE_BLOCK * sums_size);
    T *dmessages[MACE_BLOCK];
    Rows<T> rows(block.count, stride, stride);
    for (int b = 0; b < block.count; ++b) {
      dmessages[b] = dmessage.get() + b * message_size;
      rows.from[b] = dfeature_of(t, local(block, b));
      rows.to[b] = dcontracted.get() + b * size;
    }
    mix(layer.product.back, layer.out, rows);
    if (t > 0 && layer.residual) {
      for (int b = 0; b < block.count; ++b) rows.to[b] = dfeature_of(t - 1, local(block, b));
      mix(layer.skip.back, layer.into < layer.out ? layer.into : layer.out, rows,
          layer.skips > 1 ? block.species : 0, layer.skips);
    }

    Vec<T> m[most_components * MACE_BLOCK], dm[most_components * MACE_BLOCK], gradient[MACE_BLOCK];
    for (int v = 0; v < stride / width; ++v) {
      load_messages(t, block, v, m);
      for (int k = 0; k < ncomponents * MACE_BLOCK; ++k) dm[k] = Vec<T>{};
      for (std::size_t c = 0; c < layer.polynomials.size(); ++c) {
        for (int b = 0; b < MACE_BLOCK; ++b)
          gradient[b] = load(dcontracted.get() + b * size + c * stride + v * width);
        layer.polynomials[c]->back(packed.slot[block.species], v, m, gradient, dm);
      }
      for (int b = 0; b < block.count; ++b)
        for (int c = 0; c < ncomponents; ++c)
          store(dmessages[b] + static_cast<std::ptrdiff_t>(c) * stride + v * width,
                dm[c * MACE_BLOCK + b]);
    }
    T *by_mixed[MACE_BLOCK];    // by messages, or n and z
    double along_own[MACE_BLOCK] = {}, ddensity[MACE_BLOCK] = {};
    for (int b = 0; b < block.count; ++b) by_mixed[b] = dmessages[b];
    if (layer.gated) behind_gates_back(t, block, dmessages, by_mixed);
    if (layer.gated) own_back(t, block, by_mixed, along_own);
    for (int b = 0; layer.density && b < block.count; ++b) {
      const T *const mixed = mixed_of(t, local(block, b));
      const double factor = density_factor(t, local(block, b));
      // As long as each other, for each b. NOLINTNEXTLINE(clang-analyzer-*)
      const double along = dot(by_mixed[b], mixed, mixed_size(layer)) - along_own[b];
      for (std::size_t k = 0; k < mixed_size(layer); ++k) by_mixed[b][k] *= static_cast<T>(factor);
      ddensity[b] = -along * factor * layer.source->divisor[1];
    }
    mix_messages(layer, block, dedge_sums.get(), by_mixed, true);
    for (int b = 0; b < block.count; ++b)
      edges_back(t, local(block, b), dedge_sums.get() + b * sums_size, ddensity[b]);
  }

  /// Derivatives by n and z from those by messages.
  void behind_gates_back(int t, const CenterBlock &block, T *const *dmessages, T **by_ungated)
  {
    const std::size_t message_size = static_cast<std::size_t>(ncomponents) * stride,
                      size = packed.ungated_size();
    opened.reserve(MACE_BLOCK * message_size);
    dungated.reserve(MACE_BLOCK * size);
    clear(opened.get(), MACE_BLOCK * message_size);
    Rows<T> rows(block.count, stride, stride);
    for (int b = 0; b < block.count; ++b) {
      rows.from[b] = dmessages[b];
      rows.to[b] = opened.get() + b * message_size;
    }
    mix(layers[t]->mix.back, network.largest, rows);
    for (int b = 0; b < block.count; ++b) {
      by_ungated[b] = dungated.get() + b * size;
      gates_back(ungated_of(t, local(block, b)), rows.to[b], by_ungated[b]);
    }
  }

  void edges_back(int t, int center, const T *dsums, double ddensity)
  {
    const PackedLayer<T> &layer = *layers[t];
    take_edges(t, center, true);
    directions.begin_back();
    const int begin = first_edge[center];
    const std::size_t size = packed.sent_size(layer);
    neighbor_dfeature.reserve(directions.n);
    for (int e = 0; t > 0 && e < directions.n; ++e)
      neighbor_dfeature[e] = dfeatures[t % 2].get() + row[begin + e] * size;
    int degree = 0;
    for (std::size_t p = 0; p < layer.paths.size(); ++p) {
      const Path<T> &path = *layer.paths[p];
      shift_features(layer, degree, path.feature, t > 0);
      degree = path.feature;
      const PathEdges<T> edges = edges_of(path, p, layer, true);
      const int ncouplings = (2 * path.feature + 1) * (2 * path.degree + 1);
      dcoupling.reserve(static_cast<std::size_t>(directions.nvectors) * ncouplings * width);
      for (int k = 0; k < ncouplings * width; ++k)    // lanes beyond the last edge
        if (directions.nvectors > 0)
          dcoupling[static_cast<std::size_t>(directions.nvectors - 1) * ncouplings * width + k] = 0;
      path.sums.back(edges, dsums + static_cast<std::ptrdiff_t>(path.first) * layer.edge_stride,
                     dcoupling.get(), t > 0 ? neighbor_dfeature.get() : nullptr,
                     directions.radial.get());
      directions.couple_back(path.coupled, ncouplings, dcoupling.get());
    }
    const bool repel = t == 0 && !network.zbl.empty();
    for (int e = 0; e < directions.n; ++e) {
      if (layer.density)
        directions.radial[e] +=
            ddensity *
            static_cast<double>(radial_slope[static_cast<std::size_t>(e) * layer.radial->columns +
                                             layer.paths.size() * layer.edge_stride]);
      if (repel)
        directions.radial[e] +=
            repulsion(input->species[row_of(center)], input->species[row[begin + e]],
                      directions.r[e], atom_energy[row_of(center)]);
    }
    directions.back(&edge_gradient[3 * static_cast<std::size_t>(begin)]);
  }

  /// Adds half of the energy of a pair, and returns its derivative.
  double repulsion(int a, int b, double r, double &energy) const
  {
    const std::ptrdiff_t pair = static_cast<std::ptrdiff_t>(a) * nspecies + b;
    const double reach = network.zbl_reach[pair];
    if (r >= reach) return 0.0;
    double slope = 0.0;
    energy += 0.5 * network.scale *
              mace_zbl(network.zbl.data(), network.zbl_strength[pair], network.zbl_length[pair],
                       reach, r, slope);
    return 0.5 * network.scale * slope;
  }

  void begin_dfeatures(int t)
  {
    if (t == 0) return;
    const std::size_t n = packed.sent_size(*layers[t]) * static_cast<std::size_t>(input->nrows);
    dfeatures[t % 2].reserve(n);
    clear(dfeatures[t % 2].get(), n);
  }

  Mace<T> &model;
  const PackedMace<T> &packed;
  const MaceNetwork &network;
  const std::vector<std::unique_ptr<PackedLayer<T>>> &layers;
  const int channels, stride, ncomponents, nspecies;

  // Of an evaluation.
  const Input *input = nullptr;
  double *atom_energy = nullptr;    // [rows]
  const CenterBlock *blocks = nullptr;
  int nblocks = 0, ncenters = 0;
  const int *order = nullptr;           // [ncenters]
  Buffer<int> first_edge, row;          // [ncenters + 1], [edges]
  Buffer<double> rij, edge_gradient;    // [edges, 3]
  Buffer<T> message;                    // [layers, ncenters, components, stride]
  Buffer<T> ungated;                    // [layers, ncenters, ungated_size()]
  Buffer<double> inverse_density;       // [layers, ncenters]
  Buffer<T> feature, dfeature;          // [layers][ncenters, components that leave, stride]
  Buffer<T> dfeatures[2];               // [nrows, sent_size()] of this worker alone

  // Scratch of a center or a block.
  std::vector<std::unique_ptr<RadialFunctions>> functions;    // [layers]
  Directions<T> directions;
  Buffer<const T *> neighbor_feature;      // [edges]
  Buffer<T *> neighbor_dfeature;           // [edges]
  Buffer<T> radial_value, radial_slope;    // [edges, columns]
  Buffer<T> coupling, dcoupling;
  Buffer<T> edge_sums, dedge_sums;      // [MACE_BLOCK, components of A, edge_stride]
  Buffer<T> dmessage, opened;           // [MACE_BLOCK, components, stride]; behind the gates
  Buffer<T> dungated, by_own;           // [MACE_BLOCK, ungated_size() or sent_size()]
  Buffer<T> contracted, dcontracted;    // likewise, of B
  Buffer<double> hidden, middle_of_readout;
};

}    // namespace
}    // namespace mace

Program *make_mace_program(const MacePlan &plan, Precision precision)
{
  if (precision == Precision::mixed) return new mace::Mace<float>(plan, precision);
  return new mace::Mace<double>(plan, precision);
}

}    // namespace pwmlff::PWMLFF_ISA
