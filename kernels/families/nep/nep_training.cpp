// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_training.h"

#include "../../core/cpu/instruction_set.h"
#include "cpu/nep_gradient.h"
#include "nep_engine.h"

#include <algorithm>
#include <stdexcept>

namespace pwmlff {

NepGradient::~NepGradient() = default;

struct NepTraining::Parts {
  Parts(const NepNetwork &network, bool single, const std::vector<bool> &present) :
      network(network), single(single), present(present)
  {
    make();
  }

  /// Both have the parameters in a form of their own.
  void make()
  {
    engine = make_nep_engine(network, {single ? Precision::mixed : Precision::exact, present});
    gradient.reset(PWMLFF_IN_USE(make_nep_gradient(network, single, present)));
  }

  /// A row for each atom, and one for the end of each edge.
  Input rows_of(const NepFrame &frame)
  {
    const int n = frame.natoms, nspecies = network.nspecies();
    first.assign(1, 0);
    for (int k = 0; k < n * nspecies; ++k) first.push_back(first.back() + frame.count[k]);
    const int nedges = first.back(), nrows = n + nedges;
    x.assign(3 * static_cast<std::size_t>(n), 0.0);
    x.insert(x.end(), frame.rij, frame.rij + 3 * static_cast<std::size_t>(nedges));
    species.assign(frame.species, frame.species + n);
    candidate.resize(nedges);
    for (int e = 0; e < nedges; ++e) {
      species.push_back(frame.species[frame.j[e]]);
      candidate[e] = n + e;
    }
    Input input;
    input.ncenters = n;
    input.nrows = nrows;
    input.x = x.data();
    input.species = species.data();
    input.first = first.data();
    input.candidate = candidate.data();
    return input;
  }

  NepNetwork network;
  const bool single;
  const std::vector<bool> present;
  std::unique_ptr<FusedEngine> engine;
  std::unique_ptr<NepGradient> gradient;
  std::vector<double> x, velocity;
  std::vector<int> species, first, candidate;
};

NepTraining::NepTraining(const NepNetwork &network, bool single, const std::vector<bool> &present) :
    parts(std::make_unique<Parts>(network, single, present)), size_(0)
{
  if (network.charge_mode > 0)
    throw std::invalid_argument(
        "found a NEP with charges, which are not trained here, expected one "
        "without");
  for (const auto *array : parts->network.learned()) size_ += array->size();
}

NepTraining::~NepTraining() = default;

void NepTraining::set_parameters(const double *parameters)
{
  for (auto *array : parts->network.learned()) {
    std::copy_n(parameters, array->size(), array->begin());
    parameters += array->size();
  }
  parts->make();
}

void NepTraining::describe(const NepFrame &frame, double *q)
{
  const Input input = parts->rows_of(frame);
  parts->velocity.assign(3 * static_cast<std::size_t>(input.nrows), 0.0);
  parts->gradient->describe(input, parts->velocity.data(), q);
}

double NepTraining::evaluate(const NepFrame &frame, double *force, double *virial)
{
  const Input input = parts->rows_of(frame);
  const Evaluation &result = parts->engine->evaluate(input);
  std::copy_n(result.force, 3 * static_cast<std::size_t>(frame.natoms), force);
  std::fill_n(virial, 9, 0.0);
  for (int e = 0; e < input.nrows - frame.natoms; ++e) {
    const double *f = result.force + 3 * (static_cast<std::size_t>(frame.natoms) + e);
    for (int c = 0; c < 3; ++c) {
      force[3 * static_cast<std::size_t>(frame.j[e]) + c] += f[c];
      for (int k = 0; k < 3; ++k)
        virial[3 * k + c] += frame.rij[3 * static_cast<std::size_t>(e) + k] * f[c];
    }
  }
  return result.energy;
}

void NepTraining::add_gradient(const NepFrame &frame, double a, const double *v, const double *w,
                               double *gradient)
{
  const Input input = parts->rows_of(frame);
  auto &velocity = parts->velocity;
  velocity.assign(v, v + 3 * static_cast<std::size_t>(frame.natoms));
  for (int e = 0; e < input.nrows - frame.natoms; ++e) {
    const double *r = frame.rij + 3 * static_cast<std::size_t>(e);
    for (int c = 0; c < 3; ++c)
      velocity.push_back(v[3 * static_cast<std::size_t>(frame.j[e]) + c] + w[c] * r[0] +
                         w[3 + c] * r[1] + w[6 + c] * r[2]);
  }
  parts->gradient->add(input, a, velocity.data(), gradient);
}

}    // namespace pwmlff
