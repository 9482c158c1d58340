// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_training.h"

#include "../../core/cpu/instruction_set.h"
#include "../../core/images.h"
#include "../../core/virial_terms.h"
#include "cpu/nep_gradient.h"
#include "nep_engine.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pwmlff {

NepGradient::~NepGradient() = default;
NepPotentials::~NepPotentials() = default;

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
    if (network.charge_mode > 0) potentials.reset(PWMLFF_IN_USE(make_nep_potentials(network)));
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
    if (potentials) stand_where_atoms_are(frame);
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
    if (potentials) {
      input.cell = frame.cell;
      input.exchange = &ends.emplace(home, n);
      input.node_row = home.data();
    }
    return input;
  }

  /// Without charges each atom may be at 0.
  void stand_where_atoms_are(const NepFrame &frame)
  {
    const int n = frame.natoms, nspecies = network.nspecies();
    home.resize(x.size() / 3);
    for (int i = 0; i < n; ++i) {
      home[i] = i;
      std::copy_n(frame.x + 3 * static_cast<std::ptrdiff_t>(i), 3, &x[3 * i]);
      for (int e = first[i * nspecies]; e < first[(i + 1) * nspecies]; ++e) {
        home[n + e] = frame.j[e];
        for (int c = 0; c < 3; ++c) x[3 * (n + e) + c] += x[3 * i + c];
      }
    }
  }

  NepNetwork network;
  const bool single;
  const std::vector<bool> present;
  std::unique_ptr<FusedEngine> engine;
  std::unique_ptr<NepGradient> gradient;
  std::unique_ptr<NepPotentials> potentials;    // of a model with charges
  std::optional<Images> ends;                   // of edges, of the atoms that are there
  std::vector<double> x, velocity, charge, potential;
  std::vector<int> species, first, candidate, home;
};

NepTraining::NepTraining(const NepNetwork &network, bool single, const std::vector<bool> &present) :
    parts(std::make_unique<Parts>(network, single, present)), size_(0)
{
  for (const std::span<double> part : parts->network.learned()) size_ += part.size();
}

NepTraining::~NepTraining() = default;

void NepTraining::set_parameters(const double *parameters)
{
  for (const std::span<double> part : parts->network.learned()) {
    std::copy_n(parameters, part.size(), part.begin());
    parameters += part.size();
  }
  parts->make();
}

void NepTraining::describe(const NepFrame &frame, double *q)
{
  const Input input = parts->rows_of(frame);
  parts->velocity.assign(3 * static_cast<std::size_t>(input.nrows), 0.0);
  parts->gradient->describe(input, parts->velocity.data(), q);
}

void NepTraining::find_charges(const NepFrame &frame, double *charge)
{
  const Input input = parts->rows_of(frame);
  parts->velocity.assign(3 * static_cast<std::size_t>(input.nrows), 0.0);
  parts->charge.resize(2 * static_cast<std::size_t>(frame.natoms));
  parts->gradient->charges(input, parts->velocity.data(), parts->charge.data());
  for (int i = 0; i < frame.natoms; ++i) charge[i] = parts->charge[2 * i];
}

double NepTraining::evaluate(const NepFrame &frame, double *force, double *virial, double *born)
{
  Input input = parts->rows_of(frame);
  input.want_born = born != nullptr;
  const Evaluation &result = parts->engine->evaluate(input);
  std::copy_n(result.force, 3 * static_cast<std::size_t>(frame.natoms), force);
  std::fill_n(virial, 9, 0.0);
  if (born) std::copy_n(result.born, 9 * static_cast<std::size_t>(frame.natoms), born);
  for (int e = 0; e < input.nrows - frame.natoms; ++e) {
    const std::size_t row = static_cast<std::size_t>(frame.natoms) + e;
    const double *const f = result.force + 3 * row;
    for (int c = 0; c < 9 && born; ++c)
      born[9 * static_cast<std::size_t>(frame.j[e]) + c] += result.born[9 * row + c];
    for (int c = 0; c < 3; ++c) {
      force[3 * static_cast<std::size_t>(frame.j[e]) + c] += f[c];
      for (int k = 0; k < 3; ++k)
        virial[3 * k + c] += frame.rij[3 * static_cast<std::size_t>(e) + k] * f[c];
    }
  }
  if (parts->potentials)    // of which edges have a part alone
    for (int k = 0; k < 9; ++k) virial[virial_component(k)] = result.virial[k];
  return result.energy;
}

void NepTraining::add_gradient(const NepFrame &frame, double a, const double *v, const double *w,
                               double neutral, const double *born, double *gradient)
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
  const double *potential = nullptr;
  if (parts->potentials) {
    parts->charge.resize(2 * static_cast<std::size_t>(frame.natoms));
    parts->potential.resize(parts->charge.size());
    parts->gradient->charges(input, velocity.data(), parts->charge.data());
    double mean = 0.0;
    for (int i = 0; i < frame.natoms; ++i) mean += parts->charge[2 * i] / frame.natoms;
    parts->potentials->evaluate(input, velocity.data(), w, parts->charge.data(),
                                parts->potential.data());
    // dS has, of each charge, less the rate of its potential.
    for (int i = 0; i < frame.natoms; ++i)
      parts->potential[2 * i + 1] -= 2.0 * neutral * mean / frame.natoms;
    potential = parts->potential.data();
  }
  parts->gradient->add(input, a, velocity.data(), potential, 1.0, gradient);
  if (born) add_born_gradient(frame, born, gradient);
}

void NepTraining::add_born_gradient(const NepFrame &frame, const double *born, double *gradient)
{
  const Input input = parts->rows_of(frame);
  const std::size_t n = frame.natoms;
  auto &velocity = parts->velocity;
  velocity.assign(3 * static_cast<std::size_t>(input.nrows), 0.0);
  const int nspecies = parts->network.nspecies();
  for (std::size_t i = 0; i < n; ++i)
    for (int e = input.first[i * nspecies]; e < input.first[(i + 1) * nspecies]; ++e)
      for (int c = 0; c < 9; ++c)
        velocity[3 * (n + e) + c % 3] +=
            0.5 * frame.rij[3 * static_cast<std::size_t>(e) + c / 3] *
            (born[9 * i + c] - born[9 * static_cast<std::size_t>(frame.j[e]) + c]);
  std::vector<double> traces(n);
  double mean = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    traces[i] = born[9 * i] + born[9 * i + 4] + born[9 * i + 8];
    mean += traces[i] / static_cast<double>(n);
  }
  parts->charge.resize(2 * n);
  parts->potential.resize(2 * n);
  parts->gradient->charges(input, velocity.data(), parts->charge.data());
  const double root_epsilon = parts->network.root_epsilon;
  double &by_root_epsilon = gradient[size_ - 1];
  for (std::size_t i = 0; i < n; ++i) {
    traces[i] -= mean;
    by_root_epsilon += traces[i] * parts->charge[2 * i] + parts->charge[2 * i + 1];
    parts->potential[2 * i] = -1.0;    // as add() has a dE/dp less its rate
    parts->potential[2 * i + 1] = -root_epsilon * traces[i];
  }
  for (double &component : velocity) component *= root_epsilon;
  parts->gradient->add(input, 0.0, velocity.data(), parts->potential.data(), 0.0, gradient);
}

}    // namespace pwmlff
