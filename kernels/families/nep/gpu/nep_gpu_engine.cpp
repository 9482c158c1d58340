// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_gpu_engine.h"

#include "../../../math/sphere_constants.h"
#include "../series.h"
#include "kernels.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff {

namespace {

int groups_of(int nfunctions) { return (nfunctions + NEP_GROUP - 1) / NEP_GROUP; }

double square(double x) { return x * x; }

template <class T> class NepGpuEngine : public FusedEngine {
 public:
  NepGpuEngine(const NepNetwork &network, const EngineSettings &settings) :
      FusedEngine(settings.device),
      present(settings.present),
      chunk_bytes(settings.chunk_bytes
                      ? settings.chunk_bytes
                      : std::max(CHUNK_BYTES, settings.device->memory() / MEMORY_SHARE))
  {
    model.nspecies = network.nspecies();
    model.nradial = network.nradial;
    model.radial_groups = groups_of(network.nradial);
    model.kradial = network.kradial;
    model.degree = network.largest_degree();
    model.places = model.degree * (model.degree + 2);
    model.nangular = network.nangular;
    model.angular_groups = network.angular() ? groups_of(network.nangular) : 0;
    model.kangular = network.kangular;
    model.l_max = network.l_max;
    model.ndescriptors = network.ndescriptors();
    model.nhidden = network.nhidden0 + network.nhidden1;
    model.temperature = network.temperature;
    keep_sphere();
    keep_pairs(network);
    keep_invariants(network);
    keep_networks(network);
    check_scratch();
  }

  const Evaluation &evaluate(const Input &input) override
  {
    const GpuNeighbors &neighbors = neighbors_on(device_, input);
    if (generation != neighbors.generation()) make_chunks(neighbors);
    const GpuSums::Place place = sums.begin(input);
    const auto nitems = static_cast<std::int64_t>(nall);
    for (std::int64_t first = 0; first < nitems; first += chunk_items)
      run_chunk(neighbors, first, std::min(chunk_items, nitems - first), input.temperature, place);
    sums.finish(input, nitems, result);
    return result;
  }

 private:
  template <class V> const T *keep(const V &values)
  {
    return constants.keep(std::vector<T>(values.begin(), values.end()));
  }

  void keep_sphere()
  {
    constexpr int degrees = 9;
    const auto &numbers = sphere_constants<degrees - 1>;
    std::vector<double> table;
    for (int m = 0; m < degrees; ++m)
      for (int l = 0; l < degrees; ++l) {
        table.push_back(l == m ? numbers.first[m] : numbers.a[l][m]);
        table.push_back(numbers.b[l][m]);
      }
    model.sphere = keep(table);
  }

  NepGpuSeries<T> keep_series(const double *c, int nfunctions, int nbasis, double cutoff)
  {
    const NepSeries series(c, nfunctions, nbasis);
    std::vector<double> sorted(static_cast<std::size_t>(groups_of(nfunctions)) * nbasis *
                               NEP_GROUP);
    for (int n = 0; n < nfunctions; ++n)
      for (int k = 0; k < nbasis; ++k)
        sorted[(n / NEP_GROUP * nbasis + k) * NEP_GROUP + n % NEP_GROUP] =
            series.value[n * nbasis + k];
    return {static_cast<T>(1.0 / cutoff), keep(sorted)};
  }

  void keep_pairs(const NepNetwork &network)
  {
    std::vector<NepGpuPair<T>> pairs(network.nspecies() * network.nspecies());
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      NepGpuPair<T> &pair = pairs[p] = {};
      if (!network.zbl.empty()) pair.zbl = network.zbl[p];
      pair.radial = keep_series(&network.c_radial[p * network.nradial * network.kradial],
                                network.nradial, network.kradial, network.cut_radial[p]);
      // Without angular part those are near that ZBL reaches.
      double near = pair.zbl.reach;
      if (network.angular()) {
        near = network.cut_angular[p];
        pair.angular = keep_series(&network.c_angular[p * network.nangular * network.kangular],
                                   network.nangular, network.kangular, near);
      }
      pair.near = square(near);
      pair.cutoff = square(network.cut_radial[p]);
    }
    model.pairs = constants.keep(pairs);
  }

  void keep_invariants(const NepNetwork &network)
  {
    std::vector<NepGpuInvariant> invariants;
    std::vector<NepGpuProduct<T>> products;
    std::vector<std::vector<NepGpuProduct<T>>> by_place(model.places);
    model.squared = -1;
    for (int kind = 0; kind < NEP_INVARIANTS; ++kind) {
      if (!network.invariant[kind]) continue;
      const int block = static_cast<int>(invariants.size());
      const int first = static_cast<int>(products.size());
      const bool squared = kind == static_cast<int>(NepInvariant::q1111);
      if (squared) model.squared = block;
      else
        for (const auto &[i, j, k, factor] : nep_products(static_cast<NepInvariant>(kind))) {
          const T f = static_cast<T>(factor);
          products.push_back({block, i, j, k, f});
          by_place[i].push_back({block, j, k, 0, f});
          by_place[j].push_back({block, i, k, 0, f});
          by_place[k].push_back({block, i, j, 0, f});
        }
      invariants.push_back({squared, first, static_cast<int>(products.size())});
    }
    std::vector<NepGpuProduct<T>> derivatives;
    std::vector<int> first_derivative{0};
    for (const auto &list : by_place) {
      derivatives.insert(derivatives.end(), list.begin(), list.end());
      first_derivative.push_back(static_cast<int>(derivatives.size()));
    }
    model.ninvariants = static_cast<int>(invariants.size());
    model.invariants = constants.keep(invariants);
    model.products = constants.keep(products);
    model.derivatives = constants.keep(derivatives);
    model.first_derivative = constants.keep(first_derivative);
  }

  /// @param weight  [out, in]
  /// @param scale   [in] a factor of each column, or null
  typename NepGpuNetwork<T>::Layer keep_layer(const double *weight, const double *scale,
                                              const double *bias, int in, int out)
  {
    std::vector<double> scaled, transposed(static_cast<std::size_t>(in) * out);
    for (int o = 0; o < out; ++o)
      for (int i = 0; i < in; ++i) {
        scaled.push_back(weight[o * in + i] * (scale ? scale[i] : 1.0));
        transposed[i * out + o] = scaled.back();
      }
    return {in, out, keep(scaled), keep(transposed), keep(std::vector<double>(bias, bias + out))};
  }

  void keep_networks(const NepNetwork &network)
  {
    const int nd = network.ndescriptors(), h0 = network.nhidden0, h1 = network.nhidden1;
    std::vector<NepGpuNetwork<T>> networks(network.nspecies());
    for (int s = 0; s < network.nspecies(); ++s) {
      NepGpuNetwork<T> &net = networks[s] = {};
      net.nlayers = h1 ? 2 : 1;
      net.layer[0] = keep_layer(&network.weight0[static_cast<std::size_t>(s) * h0 * nd],
                                network.q_scaler.data(), &network.bias0[s * h0], nd, h0);
      if (h1)
        net.layer[1] = keep_layer(&network.weight1[static_cast<std::size_t>(s) * h1 * h0], nullptr,
                                  &network.bias1[s * h1], h0, h1);
      const double *const last = &network.last[s * network.nlast()];
      net.last = keep(std::vector<double>(last, last + network.nlast()));
      net.shift = network.shift[s];
    }
    model.networks = constants.keep(networks);
  }

  void check_scratch() const
  {
    const std::size_t needed = std::max(
        BlockShape::make(NepEnergies<T>::lanes, NepEnergies<T>::scratch_bytes(model)).scratch,
        BlockShape::make(NepForces<T>::lanes, NepForces<T>::scratch_bytes(model)).scratch);
    if (needed > device_->largest_scratch())
      throw std::runtime_error("this NEP needs " + std::to_string(needed) +
                               " bytes of shared memory, " + processor() + " has " +
                               std::to_string(device_->largest_scratch()) + "; use device cpu");
  }

  void make_chunks(const GpuNeighbors &neighbors)
  {
    const Centers centers(neighbors.species_of_rows().data(), neighbors.ncenters(), present);
    nall = centers.order.size();
    order.assign(centers.order);
    device_->synchronize();    // the vector is gone after this
    stride = std::max(1, neighbors.most_candidates());
    const std::size_t item_bytes =
        (2 * sizeof(int) + 4 * sizeof(T)) * stride + sizeof(T) * model.slopes();
    chunk_items = static_cast<std::int64_t>(std::max<std::size_t>(1, chunk_bytes / item_bytes));
    const std::size_t n = std::min<std::size_t>(chunk_items, nall);
    count.reserve(2 * n);
    neighbor.reserve(n * stride);
    kind.reserve(n * stride);
    edge.reserve(4 * n * stride);
    slope.reserve(n * model.slopes());
    if (n == nall)
      radial.reserve(static_cast<std::size_t>(neighbors.ncenters()) * model.radial_size());
    generation = neighbors.generation();
  }

  void run_chunk(const GpuNeighbors &neighbors, std::int64_t first, std::int64_t n,
                 double temperature, const GpuSums::Place &to)
  {
    const GpuList list = list_of(neighbors);
    const bool has_all = n == static_cast<std::int64_t>(nall);
    const NepGpuChunk<T> chunk{
        order.get() + first,  stride,     count.get(), neighbor.get(),
        kind.get(),           edge.get(), slope.get(), has_all ? radial.get() : nullptr,
        neighbors.ncenters(), first};
    device_->run(n, NepFindEdges<T>{model, list, chunk});
    device_->run(n, NepEnergies<T>{model, list, chunk, temperature, to.atom_energy},
                 NepEnergies<T>::scratch_bytes(model));
    device_->run(n, NepForces<T>{model, list, chunk, to.atom_energy, to.virial, to.rows},
                 NepForces<T>::scratch_bytes(model));
  }

  /// Of the device, for what is kept of edges. One chunk of all atoms spares many additions to
  /// forces; but ranks may share a device.
  static constexpr std::size_t MEMORY_SHARE = 16;

  const std::vector<bool> present;
  const std::size_t chunk_bytes;
  NepGpuModel<T> model{};
  Evaluation result;

  // Of the present list.
  std::int64_t generation = -1, chunk_items = 1;
  std::size_t nall = 0;
  int stride = 1;

  DeviceConstants constants{device_};
  GpuSums sums{device_};
  DeviceArray<int> order{device_}, count{device_}, neighbor{device_}, kind{device_};
  DeviceArray<T> edge{device_}, slope{device_}, radial{device_};
};

}    // namespace

std::unique_ptr<FusedEngine> make_nep_gpu_engine(const NepNetwork &network,
                                                 const EngineSettings &settings)
{
  if (settings.precision == Precision::mixed)
    return std::make_unique<NepGpuEngine<float>>(network, settings);
  return std::make_unique<NepGpuEngine<double>>(network, settings);
}

}    // namespace pwmlff
