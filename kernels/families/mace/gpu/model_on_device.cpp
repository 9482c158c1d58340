// SPDX-License-Identifier: GPL-2.0-or-later

#include "model_on_device.h"

#include "../../../core/cpu/instruction_set.h"
#include "../../../math/sphere_sums.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pwmlff {

template <class T>
MaceOnDevice<T>::MaceOnDevice(std::shared_ptr<Device> device, const MacePlan &plan, bool tabulate) :
    constants(std::move(device))
{
  keep_model(plan);
  layers.resize(plan.network.layers.size());
  for (std::size_t t = 0; t < layers.size(); ++t) keep_layer(plan, t);
  if (tabulate) keep_tables(plan);
}

template <class T> void MaceOnDevice<T>::keep_model(const MacePlan &plan)
{
  const MaceNetwork &network = plan.network;
  model.nspecies = network.nspecies();
  model.channels = network.channels;
  model.row = (network.channels + MACE_CHANNELS - 1) / MACE_CHANNELS * MACE_CHANNELS;
  model.sphere = keep(sphere_table());
  model.ncomponents = MaceGpuLayer<T>::components(network.largest);
  model.largest = network.largest;
  model.cutoff = network.cutoff;
  model.is_bessel = network.basis == MaceBasis::bessel;
  model.cutoff_first = network.cutoff_first;
  model.has_agnesi = !network.agnesi.empty();
  model.nbasis = static_cast<int>(network.frequency.size());
  model.factor = network.factor;
  model.power = network.power;
  std::copy(network.agnesi.begin(), network.agnesi.end(), model.agnesi);
  model.frequency = keep_doubles(network.frequency);
  model.radii = keep_doubles(network.radii);
  std::vector<double> energy = network.energy;
  for (double &one : energy) one += network.shift;
  model.energy = keep_doubles(energy);
  model.scale = network.scale;
  model.slot = constants.keep(plan.slot);
  std::copy(network.zbl.begin(), network.zbl.end(), model.zbl);
  model.zbl_length = keep_doubles(network.zbl_length);
  model.zbl_strength = keep_doubles(network.zbl_strength);
  model.zbl_reach = keep_doubles(network.zbl_reach);
}

template <class T> void MaceOnDevice<T>::keep_layer(const MacePlan &plan, std::size_t t)
{
  const MaceLayer &source = plan.network.layers[t];
  MaceGpuLayer<T> &layer = layers[t].layer;
  layer.into = source.into();
  layer.out = source.out();
  keep_paths(source, plan.layers[t], layers[t]);
  keep_radial(source, layer);
  keep_contraction(plan, plan.layers[t], layer);
  keep_mixing(plan, t);
  layer.readout = keep_doubles(source.readout);
  layer.nhidden = source.readout_first.columns;
  layer.readout_first = keep_doubles(source.readout_first.values);
  layer.readout_last = keep_doubles(source.readout_last);
}

template <class T>
void MaceOnDevice<T>::keep_paths(const MaceLayer &source, const MaceLayerPlan &planned,
                                 MaceLayerOnDevice<T> &result)
{
  MaceGpuLayer<T> &layer = result.layer;
  const auto npaths = source.paths.size();
  layer.npaths = static_cast<int>(npaths);
  result.nparts.assign(model.largest + 1, 0);
  std::vector<int> part;
  for (const MacePath &path : source.paths) part.push_back(result.nparts[path.degree]++);
  for (int l = 0; l <= model.largest; ++l) {
    result.first_sum.push_back(layer.nsums);
    layer.nsums += (2 * l + 1) * result.nparts[l];
  }
  std::vector<std::size_t> order(npaths);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t p) { return source.paths[p].feature; });

  std::vector<MaceGpuPath> paths;
  std::vector<MaceGpuTerm<T>> by_target, by_y;
  std::vector<int> first_by_target, first_by_y;
  for (const std::size_t p : order) {
    const MacePath &path = source.paths[p];
    const int n = (2 * path.feature + 1) * (2 * path.degree + 1);
    paths.push_back({path.feature, path.degree, static_cast<int>(p) * model.row,
                     result.first_sum[path.degree] + part[p], result.nparts[path.degree],
                     layer.ncouplings, path.harmonic % 2 ? -1 : 1});
    std::size_t next = 0;    // terms ascend by their target
    const std::vector<MaceCoupling> &terms = planned.couplings[p];
    for (int target = 0; target < n; ++target) {
      first_by_target.push_back(static_cast<int>(by_target.size()));
      for (; next < terms.size() && terms[next].target == target; ++next)
        by_target.push_back(
            {layer.ncouplings + target, terms[next].y, static_cast<T>(terms[next].value)});
    }
    layer.ncouplings += n;
  }
  first_by_target.push_back(static_cast<int>(by_target.size()));
  for (int l = 0; l <= MACE_MOST_DEGREE + 1; ++l) {
    const auto end =
        std::ranges::find_if(paths, [&](const auto &path) { return path.feature >= l; });
    layer.first_path[l] = static_cast<int>(end - paths.begin());
    layer.first_coupling[l] = end == paths.end() ? layer.ncouplings : end->first;
  }
  for (int l = 0; l <= layer.into; ++l) {
    for (int y = 0; y < model.ncomponents; ++y) {
      first_by_y.push_back(static_cast<int>(by_y.size()));
      for (const MaceGpuTerm<T> &term : by_target)
        if (term.y == y && term.target >= layer.first_coupling[l] &&
            term.target < layer.first_coupling[l + 1])
          by_y.push_back(term);
    }
    first_by_y.push_back(static_cast<int>(by_y.size()));
  }
  layer.paths = constants.keep(paths);
  layer.couplings = {constants.keep(first_by_target), constants.keep(by_target),
                     constants.keep(first_by_y), constants.keep(by_y)};
}

template <class T>
void MaceOnDevice<T>::keep_radial(const MaceLayer &source, MaceGpuLayer<T> &layer)
{
  layer.density = !source.density.empty();
  if (layer.density) layer.density_weights = keep_doubles(source.density.weights.front().values);
  layer.columns = (layer.npaths * model.row) + (layer.density ? MACE_CHANNELS : 0);
  layer.nlayers = static_cast<int>(source.radial.weights.size());
  layer.widest = model.nbasis;
  std::vector<int> columns;
  std::vector<const double *> weights;
  for (const MaceMatrix &matrix : source.radial.weights) {
    columns.push_back(matrix.columns);
    weights.push_back(keep_doubles(matrix.values));
    if (&matrix != &source.radial.weights.back())
      layer.widest = std::max(layer.widest, matrix.columns);
  }
  layer.columns_of = constants.keep(columns);
  layer.weights = constants.keep(weights);
}

namespace {

/// A monomial of m, and its coefficients.
struct Monomial {
  std::vector<int> factors;
  const double *coefficients;
  std::size_t stride;
};

std::vector<Monomial> monomials_of(const MacePolynomial &polynomial, std::size_t channels,
                                   std::size_t npresent)
{
  std::vector<Monomial> result;
  const std::size_t stride = polynomial.ncoefficients * channels;
  const double *at = polynomial.coefficients.data();
  const auto add = [&](std::vector<int> factors) {
    bool counts = false;
    for (std::size_t s = 0; s < npresent; ++s)
      counts = counts || std::any_of(at + s * stride, at + s * stride + channels,
                                     [](double value) { return value != 0.0; });
    if (counts) result.push_back({std::move(factors), at, stride});
    at += channels;
  };
  const int *p = polynomial.program.data();
  for (int na = *p++; na > 0; --na) {
    const int a = *p++;
    add({a});
    for (int nb = *p++; nb > 0; --nb) {
      const int b = *p++;
      add({a, b});
      for (int nc = *p++; nc > 0; --nc) add({a, b, *p++});
    }
  }
  return result;
}

}    // namespace

template <class T>
void MaceOnDevice<T>::keep_contraction(const MacePlan &plan, const MaceLayerPlan &planned,
                                       MaceGpuLayer<T> &layer)
{
  const int one = model.ncomponents;
  std::vector<std::vector<MaceTermOnHost>> there, back(model.ncomponents);
  for (std::size_t n = 0; n < planned.polynomials.size(); ++n) {
    auto &output = there.emplace_back();
    for (const Monomial &monomial :
         monomials_of(planned.polynomials[n], model.channels, plan.species.size())) {
      const auto factor = [&](const std::vector<int> &of, std::size_t k) {
        return k < of.size() ? of[k] : one;
      };
      const std::vector<int> &all = monomial.factors;
      output.push_back({factor(all, 0), factor(all, 1), factor(all, 2), 1.0, monomial.coefficients,
                        monomial.stride});
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (k > 0 && all[k] == all[k - 1]) continue;
        std::vector<int> rest = all;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
        back[all[k]].push_back({one + 1 + static_cast<int>(n), factor(rest, 0), factor(rest, 1),
                                static_cast<double>(std::ranges::count(all, all[k])),
                                monomial.coefficients, monomial.stride});
      }
    }
  }
  layer.contraction = keep_polynomials(plan, std::move(there));
  layer.contraction_back = keep_polynomials(plan, std::move(back));
}

template <class T>
MaceGpuPolynomials<T> MaceOnDevice<T>::keep_polynomials(
    const MacePlan &plan, std::vector<std::vector<MaceTermOnHost>> outputs)
{
  constexpr int together = MaceContract<T>::TOGETHER;
  const int one = model.ncomponents;
  std::vector<int> first{0}, codes;
  std::vector<MaceTermOnHost> all;
  for (std::vector<MaceTermOnHost> &terms : outputs) {
    std::ranges::stable_sort(terms, {},
                             [](const MaceTermOnHost &term) { return std::pair(term.a, term.b); });
    for (std::size_t n = 0; n < terms.size(); ++n) {
      int code = MaceTermCode::make(terms[n].a, terms[n].b, terms[n].c);
      const bool last_a = n + 1 == terms.size() || terms[n + 1].a != terms[n].a;
      if (last_a || terms[n + 1].b != terms[n].b) code |= MaceTermCode::LAST_B;
      if (last_a) code |= MaceTermCode::LAST_A;
      codes.push_back(code);
    }
    all.insert(all.end(), terms.begin(), terms.end());
    while (codes.size() % together) {
      codes.push_back(MaceTermCode::nothing(one));
      all.push_back({one, one, one, 0.0, nullptr, 0});
    }
    first.push_back(static_cast<int>(codes.size()));
  }
  std::vector<T> coefficients(plan.species.size() * all.size() * model.row, T(0));
  T *to = coefficients.data();
  for (std::size_t s = 0; s < plan.species.size(); ++s)
    for (const MaceTermOnHost &term : all) {
      for (int k = 0; term.coefficients && k < model.channels; ++k)
        to[k] = static_cast<T>(term.factor * term.coefficients[s * term.stride + k]);
      to += model.row;
    }
  return {static_cast<int>(outputs.size()), constants.keep(first), constants.keep(codes),
          constants.keep(coefficients)};
}

template <class T>
std::vector<double> MaceOnDevice<T>::padded(const MaceMatrix &matrix, int nblocks,
                                            bool transposed) const
{
  const std::ptrdiff_t row = model.row, k = model.channels, rows = nblocks * row;
  std::vector<double> result(static_cast<std::size_t>(rows * row));
  for (std::ptrdiff_t block = 0; block < nblocks; ++block)
    for (std::ptrdiff_t i = 0; i < k; ++i)
      for (std::ptrdiff_t o = 0; o < k; ++o)
        result[transposed ? o * rows + block * row + i : (block * row + i) * row + o] =
            matrix.values[(block * k + i) * k + o];
  return result;
}

template <class T>
void MaceOnDevice<T>::add(MaceMixing<T> &mixing, const MaceMatrix *matrices, int n, int nblocks)
{
  for (const bool transposed : {false, true}) {
    std::vector<double> all;
    for (int s = 0; s < n; ++s) {
      const std::vector<double> one = padded(matrices[s], nblocks, transposed);
      all.insert(all.end(), one.begin(), one.end());
    }
    const int in = transposed ? model.row : nblocks * model.row,
              out = transposed ? nblocks * model.row : model.row;
    auto &to = transposed ? mixing.back : mixing.there;
    to.push_back({in, out, n > 1 ? static_cast<std::int64_t>(in) * out : 0, keep(all)});
  }
}

template <class T> void MaceOnDevice<T>::keep_mixing(const MacePlan &plan, std::size_t t)
{
  const MaceNetwork &network = plan.network;
  const MaceLayer &source = network.layers[t];
  MaceLayerOnDevice<T> &to = layers[t];
  for (const MaceMatrix &matrix : source.up) add(to.up, &matrix, 1, 1);
  for (int l = 0; l <= network.largest; ++l)
    add(to.message, &source.message_of(l, 0), source.messages, to.nparts[l]);
  for (const MaceMatrix &matrix : source.product) add(to.product, &matrix, 1, 1);
  if (t == 0) {
    embedded = keep_embedding(network, std::vector<MaceMatrix>(network.nspecies(), source.up[0]));
    if (!source.skip.empty()) to.bias = keep_embedding(network, source.skip);
    return;
  }
  for (std::size_t s = 0; s < source.skip.size(); s += network.nspecies())
    add(to.skip, &source.skip[s], network.nspecies(), 1);
}

template <class T>
const T *MaceOnDevice<T>::keep_embedding(const MaceNetwork &network,
                                         const std::vector<MaceMatrix> &matrices)
{
  std::vector<double> result(static_cast<std::size_t>(network.nspecies()) * model.row);
  const std::size_t k = network.channels;
  for (int s = 0; s < network.nspecies(); ++s)
    for (std::size_t i = 0; i < k; ++i)
      for (std::size_t o = 0; o < k; ++o)
        result[s * static_cast<std::size_t>(model.row) + o] +=
            network.embedding[s * k + i] * matrices[s].values[i * k + o];
  return keep(result);
}

template <class T> void MaceOnDevice<T>::keep_tables(const MacePlan &plan)
{
  const std::unique_ptr<MaceTables<T>> tables(
      PWMLFF_IN_USE(make_mace_tables<T>(plan, model.row, MACE_CHANNELS)));
  table_bytes = tables->bytes();
  for (std::size_t t = 0; t < layers.size(); ++t) {
    MaceGpuLayer<T> &layer = layers[t].layer;
    std::vector<MaceTable<T>> on_device;
    for (int pair = 0; pair < plan.network.npairs(); ++pair) {
      MaceTable<T> table = tables->table(static_cast<int>(t), pair);
      if (table.coef) {
        const std::size_t n = static_cast<std::size_t>(table.intervals + 5) * layer.columns;
        table.coef = constants.keep(std::vector<T>(table.coef, table.coef + n));
      }
      on_device.push_back(table);
    }
    layer.tables = constants.keep(on_device);
  }
}

template class MaceOnDevice<float>;
template class MaceOnDevice<double>;

}    // namespace pwmlff
