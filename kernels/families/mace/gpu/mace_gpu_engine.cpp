// SPDX-License-Identifier: GPL-2.0-or-later

// With n layers: forward through layers 0 to n-1, the last with its way back, and back through
// layers n-2 to 0. Between them rows get what their centers send along the edges of the next layer,
// and give back the derivatives by it.
//
// Centers go through a layer in chunks. Where one chunk has all of them, edges and messages are
// kept for the way back; else they are made again.

#include "mace_gpu_engine.h"

#include "model_on_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pwmlff {

namespace {

template <class T> class MaceGpuEngine : public FusedEngine {
 public:
  MaceGpuEngine(const MaceNetwork &network, const EngineSettings &settings) :
      FusedEngine(settings.device),
      present(settings.present),
      chunk_bytes(chunk_bytes_of(settings)),
      tabulated(settings.precision != Precision::exact),
      on_device(device_, MacePlan(network, settings.present), tabulated),
      model(on_device.model)
  {
    table_bytes_ = on_device.table_bytes;
    exchanges_single_ = sizeof(T) == sizeof(float);
    for (int t = 0; t < nlayers(); ++t) {
      if (t > 0) exchange_width_ = std::max(exchange_width_, static_cast<int>(width_into(t)));
      most_sums = std::max<std::size_t>(most_sums, layer_of(t).layer.nsums);
      most_out = std::max(most_out, width_out(t));
      most_columns = std::max<std::size_t>(most_columns, layer_of(t).layer.columns);
      features.push_back(std::make_unique<DeviceArray<T>>(device_));
      by_features.push_back(std::make_unique<DeviceArray<T>>(device_));
      sent.push_back(std::make_unique<DeviceArray<T>>(device_));
    }
    check_scratch();
  }

  const Evaluation &evaluate(const Input &input) override
  {
    const GpuNeighbors &neighbors = neighbors_on(device_, input);
    if (generation != neighbors.generation()) {
      generation = -1;
      take_list(neighbors, input);
      generation = neighbors.generation();
    }
    while (!evaluate_with_room(input, neighbors)) {
    }
    return result;
  }

 private:
  struct Chunk {
    std::int64_t first;
    int nitems;
    const int *segment;                      // on the device
    std::vector<std::int64_t> of_species;    // centers of each
  };

  struct Step {
    GpuList list;
    GpuSums::Place to;
  };

  using Products = std::vector<MaceProduct<T>>;

  int nlayers() const { return static_cast<int>(on_device.layers.size()); }
  const MaceLayerOnDevice<T> &layer_of(int t) const { return on_device.layers[t]; }
  bool is_last(int t) const { return t + 1 == nlayers(); }
  std::size_t size_of(int degree) const
  {
    return static_cast<std::size_t>(MaceGpuLayer<T>::components(degree)) * model.row;
  }
  /// Numbers of a row that enters a layer, and that leaves one.
  std::size_t width_into(int t) const { return size_of(layer_of(t).into()); }
  std::size_t width_out(int t) const { return size_of(layer_of(t).out()); }
  std::size_t message_size() const
  {
    return static_cast<std::size_t>(model.ncomponents) * model.row;
  }

  /// Call work with the second template argument of kernels of edges.
  template <class Work> void for_degree(int into, const Work &work) const
  {
    if (model.largest > 3) work(std::integral_constant<int, 4>());
    else if (into == 0) work(std::integral_constant<int, 0>());
    else if (into == 1) work(std::integral_constant<int, 1>());
    else if (into == 2) work(std::integral_constant<int, 2>());
    else work(std::integral_constant<int, 4>());
  }

  void check_scratch() const
  {
    std::size_t needed = 0;
    const auto take = [&](std::size_t team) {
      needed = std::max(needed, BlockShape::make(32, team).scratch);
    };
    for (const MaceLayerOnDevice<T> &one : on_device.layers) {
      take(MaceShortEdges<T>::scratch_bytes(one.layer));
      take(MaceReadout<T>::scratch_bytes(one.layer));
      take(MaceContract<T>::scratch_bytes(model, one.layer));
      for_degree(one.into(), [&](auto into) {
        take(MaceEdgeSums<T, into>::scratch_bytes(model));
        take(MaceEdgeGradients<T, into>::scratch_bytes(model, one.layer));
      });
    }
    if (needed > device_->largest_scratch())
      throw std::runtime_error("this MACE needs " + std::to_string(needed) +
                               " bytes of shared memory, " + processor() + " has " +
                               std::to_string(device_->largest_scratch()) + "; use device cpu");
  }

  /* ---- the list ---- */

  void take_list(const GpuNeighbors &neighbors, const Input &input)
  {
    const Centers centers(neighbors.species_of_rows().data(), neighbors.ncenters(), present);
    nall = static_cast<std::int64_t>(centers.order.size());
    nrows = input.nrows;
    ncenters = neighbors.ncenters();
    stride = std::max(1, neighbors.most_candidates());
    order.assign(centers.order);
    make_chunks(centers);
    find_origins(input, centers.order);
    reserve();
    device_->synchronize();    // the vectors are gone after this
  }

  /// Bytes of an item of a chunk.
  std::size_t item_bytes(bool keeps) const
  {
    std::size_t edge = sizeof(int) + 4 * sizeof(T);
    if (!tabulated) edge += sizeof(MaceGpuShort) + 2 * most_columns * sizeof(T);
    return edge * stride + sizeof(T) * (most_sums * model.row + 3 * most_out +
                                        message_size() * (1 + (keeps ? nlayers() : 1)));
  }

  void make_chunks(const Centers &centers)
  {
    const auto all = static_cast<std::size_t>(nall);
    keeps = all * item_bytes(true) <= chunk_bytes;
    const std::int64_t most =
        keeps
            ? std::max<std::int64_t>(nall, 1)
            : static_cast<std::int64_t>(std::max<std::size_t>(1, chunk_bytes / item_bytes(false)));
    chunk_items = std::min(nall, most);
    chunks.clear();
    std::vector<int> segments;
    for (std::int64_t first = 0; first < nall; first += most) {
      const auto n = static_cast<int>(std::min(most, nall - first));
      Chunk chunk{first, n, nullptr, {}};
      for (const int begin : centers.first)
        segments.push_back(static_cast<int>(std::clamp<std::int64_t>(begin - first, 0, n)));
      const int *const mine = &segments[segments.size() - centers.first.size()];
      for (int s = 0; s < model.nspecies; ++s) chunk.of_species.push_back(mine[s + 1] - mine[s]);
      chunks.push_back(std::move(chunk));
    }
    segment.assign(segments);
    for (std::size_t c = 0; c < chunks.size(); ++c)
      chunks[c].segment = segment.get() + c * centers.first.size();
    device_->synchronize();    // the segments are gone after this
  }

  /// Which centers of this rank rows stand for that are none, where no other rank has them.
  void find_origins(const Input &input, const std::vector<int> &centers)
  {
    has_origins = input.exchange && !input.exchange->has_others() && nlayers() > 1;
    std::vector<double> center(nrows, -1.0);
    for (int r = 0; r < ncenters; ++r) center[r] = r;
    if (has_origins) input.exchange->forward({center.data(), 1});
    std::vector<int> place(ncenters, -1), items, found;
    for (std::size_t n = 0; n < centers.size(); ++n) place[centers[n]] = static_cast<int>(n);
    for (int r = 0; r < nrows; ++r) {
      const int row = static_cast<int>(center[r]);
      items.push_back(row < 0 ? -1 : place[row]);
      if (r >= ncenters) found.push_back(row);
    }
    item_of_row.assign(items);
    origin.assign(found);
    device_->synchronize();    // the vectors are gone after this
  }

  void reserve()
  {
    const auto n = static_cast<std::size_t>(chunk_items), all = static_cast<std::size_t>(nall);
    for (int t = 0; t < nlayers(); ++t) {
      features[t]->reserve((keeps_features(t) ? all : n) * width_out(t));
      if (has_own_derivatives(t)) by_features[t]->reserve((t == 0 ? n : all) * width_out(t));
      if (t > 0) sent[t]->reserve(static_cast<std::size_t>(nrows) * width_into(t));
    }
    for (int t = 1; t < nlayers(); ++t)
      by_sent[t % 2].reserve(static_cast<std::size_t>(nrows) * width_into(t));
    count.reserve(n);
    neighbor.reserve(n * stride);
    edge.reserve(4 * n * stride);
    sums.reserve(n * most_sums * model.row);
    contracted.reserve(n * most_out);
    message.reserve(n * message_size() * (keeps ? nlayers() : 1));
    by_message.reserve(n * message_size());
    density.reserve(n * nlayers());
    by_density.reserve(n);
    counter.reserve(1);
    if (!tabulated) most_short = chunk_items * stride;
  }

  /* ---- launches ---- */

  MaceGpuChunk<T> arrays_of(const Chunk &chunk, int t) const
  {
    const std::int64_t kept = keeps ? t * nall : 0;
    return {order.get() + chunk.first,
            chunk.segment,
            keeps ? item_of_row.get() : nullptr,
            chunk.nitems,
            stride,
            count.get(),
            neighbor.get(),
            edge.get(),
            sums.get(),
            message.get() + kept * static_cast<std::int64_t>(message_size()),
            by_message.get(),
            contracted.get(),
            density.get() + kept,
            by_density.get(),
            counter.get(),
            most_short,
            short_edge.get(),
            short_radial.get()};
  }

  static std::int64_t nspans(const Chunk &chunk, int of_item, int size)
  {
    std::int64_t n = 0;
    for (const std::int64_t centers : chunk.of_species) n += (centers * of_item + size - 1) / size;
    return n;
  }

  struct Mixed {
    bool x_by_center = false, y_by_center = false, add = false;
    const double *scale = nullptr;
  };
  void mix(const Chunk &chunk, const Products &products, const Mixed &how)
  {
    MaceMix<T> kernel{chunk.segment,
                      order.get() + chunk.first,
                      how.x_by_center,
                      how.y_by_center,
                      how.add,
                      how.scale,
                      0,
                      {}};
    std::int64_t nitems = 0;
    for (MaceProduct<T> one : products) {
      if (one.out == 0) continue;
      one.first_item = nitems;
      nitems += nspans(chunk, one.nrows, MaceMix<T>::ROWS) * (one.out / MaceMix<T>::COLUMNS);
      kernel.product[kernel.nproducts++] = one;
    }
    device_->run(nitems, kernel);
  }

  /// The products of each degree from features to features.
  Products of_features(const std::vector<MaceMatrices<T>> &matrices, const T *x,
                       std::size_t x_width, T *y, std::size_t y_width) const
  {
    Products result;
    for (std::size_t l = 0; l < matrices.size(); ++l) {
      const std::size_t first = l * l * model.row;
      const auto x_item = static_cast<std::int64_t>(x_width),
                 y_item = static_cast<std::int64_t>(y_width);
      result.push_back({static_cast<int>(2 * l + 1), matrices[l].in, matrices[l].out, x + first,
                        x_item, model.row, matrices[l].weight, matrices[l].by_species, y + first,
                        y_item, model.row, nullptr, 0});
    }
    return result;
  }

  /// A to m, or (back) dE/dm to dE/dA.
  void mix_messages(const Chunk &chunk, const MaceGpuChunk<T> &arrays, int t, bool back)
  {
    const MaceLayerOnDevice<T> &layer = layer_of(t);
    const std::int64_t sums_size = static_cast<std::int64_t>(layer.layer.nsums) * model.row;
    const auto size = static_cast<std::int64_t>(message_size());
    const auto &matrices = back ? layer.message.back : layer.message.there;
    Products products;
    for (int l = 0; l <= model.largest; ++l) {
      T *const m = (back ? arrays.by_message : arrays.message) +
                   static_cast<std::int64_t>(l) * l * model.row;
      T *const a = arrays.sums + static_cast<std::int64_t>(layer.first_sum[l]) * model.row;
      const std::int64_t a_row = static_cast<std::int64_t>(layer.nparts[l]) * model.row;
      MaceProduct<T> one{2 * l + 1, matrices[l].in, matrices[l].out,    a,
                         sums_size, a_row,          matrices[l].weight, matrices[l].by_species,
                         m,         size,           model.row,          nullptr,
                         0};
      if (back) {
        std::swap(one.x_item, one.y_item);
        std::swap(one.x_row, one.y_row);
        one.x = m;
        one.y = a;
      }
      products.push_back(one);
    }
    mix(chunk, products, {false, false, false, layer.layer.density ? arrays.density : nullptr});
  }

  void find_edges(const Step &step, const Chunk &chunk)
  {
    counter.clear(1);
    device_->run(chunk.nitems,
                 MaceFindEdges<T>{model, tabulated ? layer_of(0).layer.tables : nullptr, step.list,
                                  arrays_of(chunk, 0), step.to.flag});
  }

  void find_short(const Chunk &chunk, int t)
  {
    const std::int64_t nteams = std::min<std::int64_t>(most_short, MOST_SHORT_TEAMS);
    device_->run(nteams, MaceShortEdges<T>{model, layer_of(t).layer, arrays_of(chunk, t), nteams},
                 MaceShortEdges<T>::scratch_bytes(layer_of(t).layer));
  }

  const T *features_into(int t) const { return t > 0 ? sent[t]->get() : on_device.embedded; }

  /// Edges to messages.
  void find_messages(const Step &step, const Chunk &chunk, int t)
  {
    const MaceLayerOnDevice<T> &layer = layer_of(t);
    if (t == 0 || !keeps) find_edges(step, chunk);
    const MaceGpuChunk<T> arrays = arrays_of(chunk, t);
    find_short(chunk, t);
    for_degree(layer.into(), [&](auto into) {
      const MaceEdgeSums<T, into> kernel{model,  layer.layer, step.list, arrays, features_into(t),
                                         t == 0, nullptr};
      device_->run(kernel.nitems(), kernel, kernel.scratch_bytes(model));
    });
    mix_messages(chunk, arrays, t, false);
  }

  /// Whether features that leave a layer are kept for all centers: where the layer before begins
  /// them, or where the way back needs them.
  bool keeps_features(int t) const
  {
    const MaceLayerOnDevice<T> &layer = layer_of(t);
    return !layer.skip.there.empty() || (!is_last(t) && layer.layer.nhidden > 0);
  }
  T *features_of(const Chunk &chunk, int t) const
  {
    return features[t]->get() + (keeps_features(t) ? chunk.first * width_out(t) : 0);
  }
  /// Of the last layer they take the place of the features, where those are kept.
  bool has_own_derivatives(int t) const { return !is_last(t) || !keeps_features(t); }
  T *by_features_of(const Chunk &chunk, int t) const
  {
    if (!has_own_derivatives(t)) return features_of(chunk, t);
    return by_features[t]->get() + (t == 0 ? 0 : chunk.first * width_out(t));
  }

  void read_out(const Step &step, const Chunk &chunk, int t, T *gradient, double *energy)
  {
    const MaceGpuLayer<T> &layer = layer_of(t).layer;
    device_->run(chunk.nitems,
                 MaceReadout<T>{model, layer, step.list, order.get() + chunk.first,
                                features_of(chunk, t), gradient, energy, t == 0},
                 MaceReadout<T>::scratch_bytes(layer));
  }

  void contract(const Chunk &chunk, int t, bool back)
  {
    const MaceGpuLayer<T> &layer = layer_of(t).layer;
    const MaceContract<T> kernel{model, layer, arrays_of(chunk, t),
                                 back ? layer.contraction_back : layer.contraction, back};
    device_->run(kernel.nitems(nspans(chunk, 1, kernel.G)), kernel,
                 kernel.scratch_bytes(model, layer));
  }

  /// Messages to features and energies.
  void find_features(const Step &step, const Chunk &chunk, int t)
  {
    const MaceLayerOnDevice<T> &layer = layer_of(t);
    const MaceGpuChunk<T> arrays = arrays_of(chunk, t);
    contract(chunk, t, false);
    T *const to = features_of(chunk, t);
    Products products =
        of_features(layer.product.there, arrays.contracted, width_out(t), to, width_out(t));
    products[0].bias = layer.bias;
    mix(chunk, products, {false, false, !layer.skip.there.empty(), nullptr});
    read_out(step, chunk, t, is_last(t) ? by_features_of(chunk, t) : nullptr, step.to.atom_energy);
  }

  /// From derivatives by the features that leave a layer to those by its edges and by what enters.
  void go_back(const Step &step, const Chunk &chunk, int t)
  {
    const MaceLayerOnDevice<T> &layer = layer_of(t);
    const MaceGpuChunk<T> arrays = arrays_of(chunk, t);
    mix(chunk,
        of_features(layer.product.back, by_features_of(chunk, t), width_out(t), arrays.contracted,
                    width_out(t)),
        {});
    if (layer.layer.density) by_density.clear(chunk.nitems);
    contract(chunk, t, true);
    mix_messages(chunk, arrays, t, true);
    for_degree(layer.into(), [&](auto into) {
      const MaceEdgeGradients<T, into> kernel{model,
                                              layer.layer,
                                              step.list,
                                              arrays,
                                              features_into(t),
                                              t > 0 ? by_sent[t % 2].get() : nullptr,
                                              step.to.atom_energy,
                                              step.to.virial + 9 * chunk.first,
                                              step.to.rows};
      device_->run(kernel.nitems(), kernel, kernel.scratch_bytes(model, layer.layer));
      if (t == 0 || !keeps) return;
      const MaceEdgeSums<T, into, true> gather{
          model, layer.layer, step.list, arrays, features_into(t), false, by_sent[t % 2].get()};
      device_->run(gather.nitems(), gather, gather.scratch_bytes(model));
    });
  }

  /// dE by the features that leave a layer before the last.
  void find_derivatives(const Step &step, const Chunk &chunk, int t)
  {
    const MaceLayerOnDevice<T> &next = layer_of(t + 1);
    T *const to = by_features_of(chunk, t);
    read_out(step, chunk, t, to, nullptr);
    const Mixed added{false, false, true, nullptr};
    if (!next.skip.back.empty())
      mix(chunk,
          of_features(next.skip.back, by_features_of(chunk, t + 1), width_out(t + 1), to,
                      width_out(t)),
          added);
    mix(chunk,
        of_features(next.up.back, by_sent[(t + 1) % 2].get(), width_into(t + 1), to, width_out(t)),
        {true, false, true, nullptr});
  }

  /* ---- between ranks ---- */

  /// Before centers send, and begin the features that leave layer t.
  void begin_sending(const Input &input, int t)
  {
    const bool some_are_not_written = nall < ncenters || (!input.exchange && nrows > ncenters);
    if (some_are_not_written) sent[t]->clear(nrows * width_into(t));
    const auto nskipped = static_cast<int>(layer_of(t).skip.there.size());
    if (nskipped > 0 && nskipped <= layer_of(t).out()) features[t]->clear(nall * width_out(t));
  }

  /// What centers of a chunk send along the edges of layer t, and what they leave there themselves.
  void send(const Chunk &chunk, int t)
  {
    const T *const from = features_of(chunk, t - 1);
    mix(chunk,
        of_features(layer_of(t).up.there, from, width_out(t - 1), sent[t]->get(), width_into(t)),
        {false, true, false, nullptr});
    mix(chunk,
        of_features(layer_of(t).skip.there, from, width_out(t - 1), features_of(chunk, t),
                    width_out(t)),
        {});
  }

  /// To rows that stand for centers.
  void send_to_rows(const Input &input, int t)
  {
    T *const to = sent[t]->get();
    const std::size_t width = width_into(t);
    if (!input.exchange) return;
    if (has_origins) {
      device_->run(nrows - ncenters,
                   MaceCopyRows<T>{origin.get(), ncenters, static_cast<std::int64_t>(width), to});
      return;
    }
    input.exchange->forward({to, width, device_});
  }

  /// The derivatives by it, back to the centers.
  void give_back(const Input &input, int t)
  {
    T *const from = by_sent[t % 2].get();
    const std::size_t width = width_into(t);
    if (!input.exchange) return;
    if (has_origins) {
      if (keeps) return;    // centers have found theirs by themselves
      device_->run(nrows - ncenters,
                   MaceAddRows<T>{origin.get(), ncenters, static_cast<std::int64_t>(width), from});
      return;
    }
    input.exchange->reverse({from, width, device_});
  }

  /* ---- an evaluation ---- */

  /// @return false where there was no room for all short edges, which there is now
  bool evaluate_with_room(const Input &input, const GpuNeighbors &neighbors)
  {
    short_edge.reserve(most_short);
    short_radial.reserve(2 * most_short * most_columns);
    const Step step{list_of(neighbors), all_sums.begin(input)};
    device_->clear(step.to.virial, 9 * nall * sizeof(double));
    for (int t = 0; t < nlayers(); ++t) {
      if (t > 0) {
        // Ranks exchange what is right: this one asks whether it had room before the first time.
        if (t == 1 && input.exchange && !has_origins && !had_room(step)) return false;
        send_to_rows(input, t);
      }
      if (!is_last(t)) begin_sending(input, t + 1);
      if (is_last(t)) clear_derivatives(t);
      for (const Chunk &chunk : chunks) {
        find_messages(step, chunk, t);
        find_features(step, chunk, t);
        if (is_last(t)) go_back(step, chunk, t);
        else send(chunk, t + 1);
      }
    }
    for (int t = nlayers() - 2; t >= 0; --t) {
      give_back(input, t + 1);
      clear_derivatives(t);
      for (const Chunk &chunk : chunks) {
        if (!keeps) find_messages(step, chunk, t);
        else find_short(chunk, t);
        find_derivatives(step, chunk, t);
        go_back(step, chunk, t);
      }
    }
    return has_room(all_sums.finish(input, nall, result));
  }

  void clear_derivatives(int t)
  {
    if (t > 0) by_sent[t % 2].clear(nrows * width_into(t));
  }

  bool had_room(const Step &step)
  {
    std::int64_t *const found = counted.reserve(1);
    device_->download(found, step.to.flag, sizeof *found);
    device_->synchronize();
    return has_room(*found);
  }

  /// Whether there is room for so many short edges; there is for the next time.
  bool has_room(std::int64_t nshort)
  {
    if (nshort <= most_short) return true;
    most_short = nshort + nshort / 4;
    return false;
  }

  static constexpr std::int64_t MOST_SHORT_TEAMS = 4096;

  const std::vector<bool> present;
  const std::size_t chunk_bytes;
  const bool tabulated;
  const MaceOnDevice<T> on_device;
  const MaceGpuModel<T> &model;
  std::size_t most_sums = 0, most_out = 0,
              most_columns = 0;    // of a layer: rows, numbers, columns
  Evaluation result;

  // Of the present list.
  std::int64_t generation = -1, nall = 0, chunk_items = 1;
  int nrows = 0, ncenters = 0, stride = 1;
  bool keeps = true, has_origins = false;
  std::vector<Chunk> chunks;
  std::int64_t most_short = 64;

  GpuSums all_sums{device_};
  DeviceArray<int> order{device_}, segment{device_}, origin{device_}, item_of_row{device_};
  DeviceArray<int> count{device_}, neighbor{device_};
  DeviceArray<T> edge{device_}, sums{device_}, message{device_}, by_message{device_},
      contracted{device_};
  DeviceArray<double> density{device_}, by_density{device_};
  DeviceArray<std::int64_t> counter{device_};
  DeviceArray<MaceGpuShort> short_edge{device_};
  DeviceArray<T> short_radial{device_};
  // [layers] features that leave a layer and dE by them, and what is sent along edges into it
  std::vector<std::unique_ptr<DeviceArray<T>>> features, by_features, sent;
  DeviceArray<T> by_sent[2] = {DeviceArray<T>(device_), DeviceArray<T>(device_)};
  HostArray<std::int64_t> counted{device_};
};

}    // namespace

std::unique_ptr<FusedEngine> make_mace_gpu_engine(const MaceNetwork &network,
                                                  const EngineSettings &settings)
{
  if (settings.precision == Precision::mixed)
    return std::make_unique<MaceGpuEngine<float>>(network, settings);
  return std::make_unique<MaceGpuEngine<double>>(network, settings);
}

}    // namespace pwmlff
