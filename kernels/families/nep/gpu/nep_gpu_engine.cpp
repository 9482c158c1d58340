// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_gpu_engine.h"

#include "../../../math/sphere_sums.h"
#include "../series.h"
#include "kernels.h"
#include "nep_gpu_charges.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace pwmlff {

namespace {

int groups_of(int nfunctions) { return (nfunctions + NEP_GROUP - 1) / NEP_GROUP; }

double square(double x) { return x * x; }

template <class T> class NepGpuEngine : public FusedEngine {
 public:
  NepGpuEngine(const NepNetwork &network, const EngineSettings &settings) :
      FusedEngine(settings.device), present(settings.present), chunk_bytes(chunk_bytes_of(settings))
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
    if (network.charge_mode > 0) charges = std::make_unique<NepCharges>(device_, network);
    has_charges_ = charges != nullptr;
    exchange_width_ = has_charges_;
    model.sphere = keep(sphere_table());
    keep_pairs(network);
    keep_invariants(network);
    keep_networks(network);
    check_scratch();
  }

  const Evaluation &evaluate(const Input &input) override
  {
    const GpuNeighbors &neighbors = neighbors_on(device_, input);
    if (generation != neighbors.generation()) make_chunks(neighbors);
    const auto nitems = static_cast<std::int64_t>(nall);
    const std::int64_t others = charges ? charges->begin(input) : 0;
    const Step step{list_of(neighbors), neighbors.ncenters(), input.temperature,
                    sums.begin(input, others)};
    if (charges) run_charged(input, step);
    else
      for_chunks(step, [&](const NepGpuChunk<T> &chunk, std::int64_t n) {
        device_->run(n, NepFindEdges<T>{model, step.list, chunk});
        run_energies<NepWay::all>(step, chunk, n);
        run_forces(step, chunk, n);
      });
    sums.finish(input, nitems + others, result);
    if (charges) charges->show(result);
    return result;
  }

 private:
  struct Step {
    GpuList list;
    int ncenters;
    double temperature;
    GpuSums::Place to;
  };

  template <class V> const T *keep(const V &values)
  {
    return constants.keep(std::vector<T>(values.begin(), values.end()));
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
      has_far = has_far || pair.cutoff > pair.near;
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
      if (charges) {
        const double *const of_charge = &network.last_charge[s * network.nlast()];
        net.last_charge = keep(std::vector<double>(of_charge, of_charge + network.nlast()));
      }
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
    Centers centers(neighbors.species_of_rows().data(), neighbors.ncenters(), present);
    nall = centers.order.size();
    order.assign(centers.order);
    device_->synchronize();    // the vector is gone after this
    if (charges) charges->take(std::move(centers.order));
    stride = std::max(1, neighbors.most_candidates());
    const std::size_t nkept = charges ? model.places * model.row() + model.nhidden : 0;
    const std::size_t item_bytes =
        (2 * sizeof(int) + 4 * sizeof(T)) * stride + sizeof(T) * (model.slopes() + nkept);
    chunk_items = static_cast<std::int64_t>(std::max<std::size_t>(1, chunk_bytes / item_bytes));
    const std::size_t n = std::min<std::size_t>(chunk_items, nall);
    count.reserve(2 * n);
    candidate.reserve(n * stride);
    kind.reserve(n * stride);
    edge.reserve(4 * n * stride);
    slope.reserve(n * model.slopes());
    kept.reserve(n * nkept);
    if (has_all() && has_far)
      radial.reserve(static_cast<std::size_t>(neighbors.ncenters()) * model.radial_size());
    partners.take(neighbors, has_all() && !has_far);
    generation = neighbors.generation();
  }

  bool has_all() const { return chunk_items >= static_cast<std::int64_t>(nall); }

  /// Call work(chunk, number of items).
  template <class Work> void for_chunks(const Step &step, const Work &work)
  {
    const auto nitems = static_cast<std::int64_t>(nall);
    for (std::int64_t first = 0; first < nitems; first += chunk_items)
      work(NepGpuChunk<T>{order.get() + first, stride, count.get(), candidate.get(), kind.get(),
                          edge.get(), slope.get(), has_all() && has_far ? radial.get() : nullptr,
                          step.ncenters, first},
           std::min(chunk_items, nitems - first));
  }

  template <NepWay way>
  void run_energies(const Step &step, const NepGpuChunk<T> &chunk, std::int64_t n,
                    const NepGpuCharges<T> &charged = {})
  {
    device_->run(n,
                 NepEnergies<T, way>{model, step.list, chunk, step.temperature, step.to.atom_energy,
                                     charged},
                 NepEnergies<T>::scratch_bytes(model));
  }

  NepForces<T> forces(const Step &step, const NepGpuChunk<T> &chunk) const
  {
    return {model,          step.list,      chunk,       step.to.atom_energy,
            step.to.virial, partners.get(), step.to.rows};
  }

  void run_forces(const Step &step, const NepGpuChunk<T> &chunk, std::int64_t n)
  {
    device_->run(n, forces(step, chunk), NepForces<T>::scratch_bytes(model));
    partners.gather(chunk, n, step.to.rows.force);
  }

  /// Edges and what is kept of the way forth serve the way back where one chunk has all atoms; else
  /// they are found again.
  void run_charged(const Input &input, const Step &step)
  {
    NepGpuCharges<T> charged{kept.get(), charges->charge(), nullptr, 0.0};
    const auto go_forth = [&](const NepGpuChunk<T> &chunk, std::int64_t n) {
      device_->run(n, NepFindEdges<T>{model, step.list, chunk});
      run_energies<NepWay::forth>(step, chunk, n, charged);
    };
    for_chunks(step, go_forth);
    charges->find(input, step.list, order.get(), step.to.rows,
                  step.to.virial + 9 * static_cast<std::int64_t>(nall));
    for_chunks(step, [&](NepGpuChunk<T> chunk, std::int64_t n) {
      if (!has_all()) {
        charged.charge = nullptr;
        go_forth(chunk, n);
      }
      charged = {kept.get(), charges->charge(), charges->potential(), charges->mean_potential()};
      if (step.to.rows.born) {
        run_energies<NepWay::back_of_charge>(step, chunk, n, charged);
        device_->run(n, NepBorn<T>{forces(step, chunk), charges->root_epsilon, charges->charge()},
                     NepForces<T>::scratch_bytes(model));
      }
      run_energies<NepWay::back>(step, chunk, n, charged);
      run_forces(step, chunk, n);
    });
  }

  const std::vector<bool> present;
  const std::size_t chunk_bytes;
  NepGpuModel<T> model{};
  bool has_far = false;                   // edges without angular part
  std::unique_ptr<NepCharges> charges;    // null where the model has none
  Evaluation result;

  // Of the present list.
  std::int64_t generation = -1, chunk_items = 1;
  std::size_t nall = 0;
  int stride = 1;
  PartnerForces<T> partners{device_};

  DeviceConstants constants{device_};
  GpuSums sums{device_};
  DeviceArray<int> order{device_}, count{device_}, candidate{device_}, kind{device_};
  DeviceArray<T> edge{device_}, slope{device_}, radial{device_}, kept{device_};
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
