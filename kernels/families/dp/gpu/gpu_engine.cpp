// SPDX-License-Identifier: GPL-2.0-or-later

#include "gpu_engine.h"

#include "kernels.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

template <class T> class DPGpuEngine : public DPEngine {
 public:
  DPGpuEngine(const DPNetwork &network, const EngineSettings &settings) :
      DPEngine(network, settings), chunk_bytes(chunk_bytes_of(settings))
  {
    model.nspecies = network.nspecies();
    model.width = network.width;
    model.padded = round_up(network.width, 16 / sizeof(T));
    model.table_row = round_up(network.width, 128 / sizeof(T));
    model.m2 = network.m2;
    model.widest_embedding = 1;
    model.cutsq = network.rmax * network.rmax;
    model.scale = network.scale(this->present);
    keep_pairs();
    keep_fittings();
    choose_most_fit_atoms();
    splines.tables.clear();
  }

  const Evaluation &evaluate(const Input &input) override
  {
    const GpuNeighbors &neighbors = neighbors_on(device_, input);
    if (generation != neighbors.generation()) make_blocks(neighbors);
    const GpuSums::Place place = sums.begin(input);
    if (input.want_grade) grade.clear(input.ncenters);
    for (const Chunk &chunk : chunks)
      run_chunk(neighbors, chunk, place, input.want_grade ? grade.get() : nullptr);
    result.grade = nullptr;
    if (input.want_grade) {
      grade.download(host_grade.reserve(input.ncenters), input.ncenters);
      result.grade = host_grade.get();
    }
    // Waits for all downloads.
    if (const std::int64_t key = sums.finish(input, nitems, result)) {
      Excess excess = excess_of(key);
      excess.limit = network_.sel[excess.species];
      throw TooManyNeighbors(excess);
    }
    return result;
  }

 private:
  /// Blocks and items that go through all steps together.
  struct Chunk {
    std::int64_t first_block = 0, nblocks = 0, first_item = 0, nitems = 0;
  };

  template <class V> const V *keep(const std::vector<double> &values)
  {
    return constants.keep(std::vector<V>(values.begin(), values.end()));
  }

  template <class V>
  GpuLayer<V> keep_layer(const DPLayer &layer, int in, const std::vector<double> &weight)
  {
    return {in,      layer.out,           layer.residual,     keep<V>(weight),
            nullptr, keep<V>(layer.bias), keep<V>(layer.step)};
  }

  void keep_pairs()
  {
    const DPNetwork &network = network_;
    const int nspecies = network.nspecies(), width = network.width;
    std::vector<GpuPair<T>> pairs(nspecies * nspecies);
    for (int p = 0; p < nspecies * nspecies; ++p) {
      GpuPair<T> &pair = pairs[p] = {};
      pair.present = present[p / nspecies] && present[p % nspecies];
      if (!pair.present) continue;
      const SplineTable *const table = splines.tables.empty() ? nullptr : &splines.tables[p];
      pair.geometry = pair_geometry(network, p, table);
      pair.sel = network.sel[p % nspecies];
      if (table) {
        const std::size_t rows = table->coef.size() / width;
        if (rows * model.table_row > std::numeric_limits<int>::max())
          throw std::runtime_error("the tables of this DP model are too long for a GPU");
        std::vector<T> coef(rows * model.table_row, T(0));
        for (std::size_t r = 0; r < rows; ++r)
          for (int m = 0; m < width; ++m)
            coef[r * model.table_row + m] =
                static_cast<T>(table->coef[r * width + m] - table->g_rmax[m]);
        pair.table = constants.keep(coef);
        table_bytes_ += coef.size() * sizeof(T);
      }
      const DPNet &net = network.embedding[p];
      EmbeddingJets jets(net);
      jets.evaluate({pair.geometry.shift[0], 0.0, 0.0});
      std::vector<double> g_rmax(model.padded, 0.0);
      std::copy_n(jets.f.begin(), width, g_rmax.begin());
      pair.g_rmax = constants.keep(g_rmax);
      std::vector<GpuLayer<double>> layers;
      for (const DPLayer &layer : net.layers) {
        model.widest_embedding = std::max(model.widest_embedding, layer.out);
        layers.push_back(keep_layer<double>(layer, layer.in, layer.weight));
      }
      pair.nlayers = static_cast<int>(layers.size());
      pair.layers = constants.keep(layers);
    }
    model.pairs = constants.keep(pairs);
  }

  void keep_fittings()
  {
    const DPNetwork &network = network_;
    std::vector<GpuFitting<T>> fittings(network.nspecies());
    for (int a = 0; a < network.nspecies(); ++a) {
      GpuFitting<T> &fitting = fittings[a] = {};
      if (!present[a]) continue;
      const auto &layers = network.fitting[a].layers;
      std::vector<GpuLayer<T>> hidden;
      int in = descriptor_size(network.width, network.m2), total = 0;
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const std::vector<double> weight =
            l == 0 ? fold_weights(layers[l].weight, network.width, network.m2) : layers[l].weight;
        if (l + 1 == layers.size()) {
          fitting.nlast = in;
          fitting.last = keep<T>(weight);
          fitting.last_bias = layers[l].bias[0];
          break;
        }
        std::vector<double> transposed;    // only these nets go backwards by it
        for (int o = 0; o < layers[l].out; ++o)
          for (int i = 0; i < in; ++i)
            transposed.push_back(weight[static_cast<std::size_t>(i) * layers[l].out + o]);
        hidden.push_back(keep_layer<T>(layers[l], in, weight));
        hidden.back().transposed = keep<T>(transposed);
        in = layers[l].out;
        total += in;
        widest = std::max(widest, in);
      }
      depth = std::max(depth, total);
      fitting.nlayers = static_cast<int>(hidden.size());
      fitting.layers = constants.keep(hidden);
      if (network.grades.empty()) continue;
      const std::vector<double> &factor = network.grades[a].factor;
      std::vector<double> columns;
      for (int i = 0; i < in; ++i)
        for (int o = 0; o < in; ++o)
          columns.push_back(factor[static_cast<std::size_t>(o) * in + i]);
      fitting.grade_mean = keep<T>(network.grades[a].mean);
      fitting.grade_factor = keep<T>(columns);
    }
    model.fittings = constants.keep(fittings);
  }

  // Two fitting blocks at a time on a multiprocessor, where the scratch allows.
  void choose_most_fit_atoms()
  {
    constexpr std::size_t reserved = 1024;    // of each block, by the hardware
    for (const int atoms : {32, 16, 8, 4, 1}) {
      most_fit_atoms = atoms;
      if (2 * fit_scratch(atoms) + reserved <= device_->largest_scratch()) break;
    }
    const auto block = [](int lanes, std::size_t team_bytes) {
      return BlockShape::make(lanes, team_bytes).scratch;
    };
    const std::size_t needed = std::max(
        {block(Fit<T, 1>::lanes, fit_scratch(most_fit_atoms)),
         block(EdgeMoments<T>::lanes, EdgeMoments<T>::Tile::bytes(model.widest_embedding)),
         block(Differentiate<T>::lanes, Differentiate<T>::Tile::bytes(model.widest_embedding))});
    if (needed > device_->largest_scratch())
      throw std::runtime_error("the nets of this DP model need " + std::to_string(needed) +
                               " bytes of shared memory, " + processor_ + " has " +
                               std::to_string(device_->largest_scratch()) + "; use device cpu");
  }

  // As many as there can be, or fewer where whole multiprocessors would have nothing to do.
  void choose_fit_atoms(std::size_t natoms)
  {
    fit_atoms = most_fit_atoms;
    while (fit_atoms > FIT_REGISTERS &&
           natoms / fit_atoms < 2 * static_cast<std::size_t>(device_->multiprocessors()))
      fit_atoms /= 2;
  }

  std::size_t fit_scratch(int atoms) const
  {
    return Fit<T, 1>::scratch_bytes(atoms, model.width, model.m2, depth, widest);
  }

  // So many teams for a center in Differentiate that all multiprocessors have work, where there is
  // that much.
  void choose_parts(std::size_t natoms)
  {
    constexpr std::size_t resident = BlockShape::resident<Differentiate<T>>();
    const std::size_t teams = resident / Differentiate<T>::lanes * device_->multiprocessors();
    const int tiles = (stride + Differentiate<T>::Tile::size - 1) / Differentiate<T>::Tile::size;
    nparts = static_cast<int>(
        std::clamp<std::size_t>(teams / std::max<std::size_t>(1, natoms), 1, std::min(16, tiles)));
  }

  // Centers sorted by species, and cut into blocks for the fitting nets and chunks for the rest.
  void make_blocks(const GpuNeighbors &neighbors)
  {
    const Centers centers(neighbors.species_of_rows().data(), neighbors.ncenters(), taking_part);
    choose_fit_atoms(neighbors.ncenters());
    stride = std::max(1, neighbors.most_candidates());
    choose_parts(neighbors.ncenters());
    // As if forces of edges were kept at all their entries.
    constexpr std::size_t edge_bytes = 3 * sizeof(int) + 14 * sizeof(T);
    const auto chunk_items = static_cast<std::int64_t>(
        std::max<std::size_t>(fit_atoms, chunk_bytes / (edge_bytes * stride)));

    std::vector<GpuBlock> blocks;
    chunks.assign(1, Chunk{});
    for (int s = 0; s < model.nspecies; ++s)
      for (int first = centers.first[s]; first < centers.first[s + 1]; first += fit_atoms) {
        const int n = std::min(fit_atoms, centers.first[s + 1] - first);
        if (chunks.back().nitems + n > chunk_items)
          chunks.push_back({static_cast<std::int64_t>(blocks.size()), 0, first, 0});
        Chunk &chunk = chunks.back();
        blocks.push_back({s, static_cast<int>(chunk.nitems), n});
        ++chunk.nblocks;
        chunk.nitems += n;
      }
    nitems = static_cast<std::int64_t>(centers.order.size());
    order.assign(centers.order);
    blocks_on_device.assign(blocks);
    device_->synchronize();    // the vectors are gone after this

    const std::size_t n = std::min(chunk_items, nitems), edges = n * stride;
    count.reserve(n * model.nspecies);
    slots.reserve(4 * n * model.nspecies);
    candidate.reserve(edges);
    row.reserve(edges);
    place.reserve(edges);
    environment.reserve(4 * edges);
    derivative.reserve(5 * edges);
    moments.reserve(4 * n * model.padded);
    moment_gradient.reserve(4 * n * model.padded);
    partners.take(neighbors, chunks.size() == 1);
    generation = neighbors.generation();
  }

  /// @param grades [ncenters], or null where not wanted
  void run_chunk(const GpuNeighbors &neighbors, const Chunk &part, const GpuSums::Place &to,
                 double *grades)
  {
    const std::int64_t n = part.nitems;
    const GpuList list = list_of(neighbors);
    const GpuChunk<T> chunk{order.get() + part.first_item,
                            stride,
                            model.nspecies,
                            count.get(),
                            slots.get(),
                            candidate.get(),
                            row.get(),
                            place.get(),
                            environment.get(),
                            derivative.get(),
                            moments.get(),
                            moment_gradient.get(),
                            part.first_item};
    const int widest_net = model.widest_embedding;
    device_->run(n, FindEdges<T>{model, list, chunk, to.flag});
    device_->run(n, EdgeMoments<T>{model, neighbors.species(), chunk},
                 EdgeMoments<T>::Tile::bytes(widest_net));
    const GpuBlock *const fitted = blocks_on_device.get() + part.first_block;
    if (fit_atoms % FIT_REGISTERS == 0)
      device_->run(part.nblocks,
                   Fit<T, FIT_REGISTERS>{model, chunk, fitted, fit_atoms, widest, depth,
                                         to.atom_energy, grades},
                   fit_scratch(fit_atoms));
    else
      device_->run(
          part.nblocks,
          Fit<T, 1>{model, chunk, fitted, fit_atoms, widest, depth, to.atom_energy, grades},
          fit_scratch(fit_atoms));
    device_->run(n * nparts, Differentiate<T>{model, neighbors.species(), chunk, nparts},
                 Differentiate<T>::Tile::bytes(widest_net));
    device_->run(n, Forces<T>{model, list, chunk, to.atom_energy, to.virial, grades, partners.get(),
                              to.rows});
    partners.gather(chunk, n, to.rows.force);
  }

  static constexpr int FIT_REGISTERS = 32 / sizeof(T);

  const std::size_t chunk_bytes;
  GpuModel<T> model{};
  int widest = 1, depth = 0;    // of the hidden layers of the fitting nets
  int most_fit_atoms = 1;       // in a block

  // Of the present list.
  std::int64_t generation = -1, nitems = 0;
  int stride = 1, fit_atoms = 1, nparts = 1;
  std::vector<Chunk> chunks;
  PartnerForces<T> partners{device_};

  DeviceConstants constants{device_};
  DeviceArray<int> order{device_};
  DeviceArray<GpuBlock> blocks_on_device{device_};
  DeviceArray<int> count{device_}, candidate{device_}, row{device_};
  DeviceArray<double> slots{device_}, moments{device_};
  DeviceArray<T> place{device_}, environment{device_}, derivative{device_};
  DeviceArray<T> moment_gradient{device_};
  GpuSums sums{device_};
  DeviceArray<double> grade{device_};
  HostArray<double> host_grade{device_};
};

}    // namespace

std::unique_ptr<FusedEngine> make_dp_gpu_engine(const DPNetwork &network,
                                                const EngineSettings &settings)
{
  if (settings.precision == Precision::mixed)
    return std::make_unique<DPGpuEngine<float>>(network, settings);
  return std::make_unique<DPGpuEngine<double>>(network, settings);
}

}    // namespace pwmlff
