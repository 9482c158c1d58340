// SPDX-License-Identifier: GPL-2.0-or-later

#include "network.h"

#include "pair_terms.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

void require(bool fine, const std::string &text)
{
  if (!fine) throw std::runtime_error(text);
}

/// @param in, out  how many numbers it has to take and give
void check_net(const DPNet &net, const std::string &name, int in, int out)
{
  require(!net.layers.empty(), name + " has no layers");
  for (const DPLayer &layer : net.layers) {
    const std::size_t width = layer.out;
    require(layer.in == in && layer.out >= 1 && layer.weight.size() == in * width &&
                layer.bias.size() == width && layer.step.size() == width,
            name + " has a layer from width " + std::to_string(layer.in) + " to " +
                std::to_string(layer.out) + ", expected one from " + std::to_string(in) +
                " with as many weights, biases and steps");
    in = layer.out;
  }
  require(in == out,
          name + " ends with width " + std::to_string(in) + ", expected " + std::to_string(out));
}

}    // namespace

void check_network(const DPNetwork &network)
{
  const std::size_t n = network.atom_type.size();
  require(network.rmin >= 0.0 && network.rmin < network.rmax && n > 0,
          "it has Rmin " + std::to_string(network.rmin) + ", Rmax " + std::to_string(network.rmax) +
              " and " + std::to_string(n) + " types; expected 0 <= Rmin < Rmax and at least one");
  require(network.sel.size() == n && network.davg.size() == 4 * n * n &&
              network.dstd.size() == 4 * n * n && network.embedding.size() == n * n &&
              network.fitting.size() == n,
          "sel, davg, dstd, embedding_net and fitting_net are not all for " + std::to_string(n) +
              " types");
  for (const int slots : network.sel)
    require(slots >= 1, "sel holds " + std::to_string(slots) + ", expected at least 1");
  for (const double value : network.dstd)
    require(value > 0.0, "dstd holds " + std::to_string(value) + ", expected positive values");
  require(network.m2 >= 1 && network.m2 <= network.width,
          "M2 is " + std::to_string(network.m2) + ", expected 1 to " +
              std::to_string(network.width) + ", the last embedding width");
  for (std::size_t pair = 0; pair < n * n; ++pair)
    check_net(network.embedding[pair], "embedding_net." + std::to_string(pair), 1, network.width);
  for (std::size_t a = 0; a < n; ++a)
    check_net(network.fitting[a], "fitting_net." + std::to_string(a), network.width * network.m2,
              1);
  require(network.zbl.empty() || network.zbl.size() == n * n,
          "ZBL is not for all pairs of " + std::to_string(n) + " types");
  for (std::size_t pair = 0; pair < network.zbl.size(); ++pair) {
    const ZblPair &zbl = network.zbl[pair], &mirrored = network.zbl[pair % n * n + pair / n];
    const bool none = zbl.inner == 0.0 && zbl.outer == 0.0;
    require((none || (zbl.inner >= 0.0 && zbl.inner < zbl.outer && zbl.outer <= network.rmax)) &&
                zbl.inner == mirrored.inner && zbl.outer == mirrored.outer,
            "ZBL of types " + std::to_string(pair / n) + " and " + std::to_string(pair % n) +
                " ends from " + std::to_string(zbl.inner) + " to " + std::to_string(zbl.outer) +
                ", expected 0 <= inner < outer <= Rmax, the same for both orders of the types");
  }
  require(network.grades.empty() || network.grades.size() == n,
          "grades are not for all " + std::to_string(n) + " types");
  for (std::size_t a = 0; a < network.grades.size(); ++a) {
    const DPGrade &grade = network.grades[a];
    const std::size_t width = network.fitting[a].layers.back().in;
    require(network.fitting[a].layers.size() > 1 && grade.mean.size() == width &&
                grade.factor.size() == width * width,
            "the grade of type " + std::to_string(a) + " is not of the last hidden layer of " +
                "fitting_net." + std::to_string(a) + ", which has width " + std::to_string(width));
  }
}

std::vector<bool> DPNetwork::with_slots(const std::vector<bool> &present) const
{
  return all_species ? std::vector<bool>(nspecies(), true) : present;
}

double DPNetwork::scale(const std::vector<bool> &with_slots) const
{
  double slots = 0.0;
  for (int b = 0; b < nspecies(); ++b)
    if (with_slots[b]) slots += sel[b];
  return 1.0 / slots;
}

std::vector<double> fold_weights(const std::vector<double> &weight, int width, int m2)
{
  const std::size_t n = weight.size() / (static_cast<std::size_t>(width) * m2);
  const auto element = [&](int m, int k, std::size_t o) { return weight[(m * m2 + k) * n + o]; };
  std::vector<double> folded;
  for (int k = 0; k < m2; ++k)
    for (int m = k; m < width; ++m)
      for (std::size_t o = 0; o < n; ++o)
        folded.push_back(element(m, k, o) + (m < m2 && m != k ? element(k, m, o) : 0.0));
  return folded;
}

EmbeddingJets::EmbeddingJets(const DPNet &net) : net(net)
{
  int widest = 1;
  for (const DPLayer &layer : net.layers) widest = std::max(widest, layer.out);
  for (auto *array : {&f, &d1, &d2, &nf, &nd1, &nd2}) array->resize(widest);
}

void EmbeddingJets::evaluate(const Jet &x)
{
  f[0] = x.f;
  d1[0] = x.d1;
  d2[0] = x.d2;
  for (const DPLayer &layer : net.layers) step(layer);
}

void EmbeddingJets::step(const DPLayer &layer)
{
  const int out = layer.out;
  std::copy(layer.bias.begin(), layer.bias.end(), nf.begin());
  std::fill_n(nd1.begin(), out, 0.0);
  std::fill_n(nd2.begin(), out, 0.0);
  for (int i = 0; i < layer.in; ++i) {
    const double *const weight = &layer.weight[static_cast<std::size_t>(i) * out];
    const double a = f[i], b = d1[i], c = d2[i];
    for (int o = 0; o < out; ++o) {
      nf[o] += a * weight[o];
      nd1[o] += b * weight[o];
      nd2[o] += c * weight[o];
    }
  }
  for (int o = 0; o < out; ++o) {
    const int i = o % layer.in;
    const double t = std::tanh(nf[o]), dz = nd1[o], step = layer.step[o];
    nd2[o] = step * (1.0 - t * t) * (nd2[o] - 2.0 * t * dz * dz) + (layer.residual ? d2[i] : 0.0);
    nf[o] = hidden_output(layer.residual, step, f[i], t);
    nd1[o] = hidden_tangent(layer.residual, step, t, d1[i], dz);
  }
  f.swap(nf);
  d1.swap(nd1);
  d2.swap(nd2);
}

}    // namespace pwmlff
