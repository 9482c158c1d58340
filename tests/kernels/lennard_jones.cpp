// SPDX-License-Identifier: GPL-2.0-or-later

// What the family of lennard_jones/ gives, compared with differences of the energies of pairs.
// Exits with 1 where that differs.

#include "lennard_jones/family.cpp"

#include <algorithm>
#include <iostream>
#include <random>

using namespace pwmlff;

namespace {

const LennardJones MODEL{0.02, 2.5, 5.0, {18, 36}};
constexpr int NATOMS = 40, NSPECIES = 2;

/// Of all pairs, each once.
double energy_of(const std::vector<double> &x)
{
  double energy = 0.0, slope = 0.0;
  for (int i = 0; i < NATOMS; ++i)
    for (int j = 0; j < i; ++j) {
      const double r =
          std::hypot(x[3 * i] - x[3 * j], x[3 * i + 1] - x[3 * j + 1], x[3 * i + 2] - x[3 * j + 2]);
      if (r < MODEL.rc) energy += MODEL.energy(r, slope);
    }
  return energy;
}

/// By central differences along a direction.
double derivative(const std::vector<double> &x, const std::vector<double> &direction)
{
  constexpr double H = 1e-5;
  std::vector<double> ahead = x, behind = x;
  for (std::size_t k = 0; k < x.size(); ++k) {
    ahead[k] += H * direction[k];
    behind[k] -= H * direction[k];
  }
  return (energy_of(ahead) - energy_of(behind)) / (2.0 * H);
}

int failures = 0;

void expect(const char *what, double found, double wanted)
{
  if (std::abs(found - wanted) <= 1e-7 * (1.0 + std::abs(wanted))) return;
  std::cout << what << " is " << found << ", expected " << wanted << '\n';
  ++failures;
}

}    // namespace

int main()
{
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> noise(-0.2, 0.2);
  std::vector<double> x;
  std::vector<int> species, first, candidate;
  for (int i = 0; i < NATOMS; ++i) {
    species.push_back(i % NSPECIES);
    for (const int n : {i % 4, i / 4 % 4, i / 16}) x.push_back(2.6 * n + noise(generator));
  }
  for (int i = 0; i < NATOMS; ++i)
    for (int s = 0; s < NSPECIES; ++s) {
      first.push_back(static_cast<int>(candidate.size()));
      for (int j = 0; j < NATOMS; ++j)
        if (j != i && species[j] == s) candidate.push_back(j);
    }
  first.push_back(static_cast<int>(candidate.size()));

  families().push_back(&lennard_jones_family);
  const std::string_view file = "lennard-jones 0.02 2.5 5.0 18 36\n";
  const Family *const family = family_of_file(file);
  if (!family) return 2;
  const auto network = read_network(Arrays::read(family->import(file).written()));
  const auto engine = network->engine({Precision::exact, std::vector<bool>(NSPECIES, true)});
  Input input;
  input.ncenters = input.nrows = NATOMS;
  input.species = species.data();
  input.first = first.data();
  input.candidate = candidate.data();
  input.want_atom_virial = true;
  for (const int nthreads : {1, 2, 7})
    for (const std::uint64_t list : {0, 5, 5}) {    // the second time with other positions
      for (double &component : x) component += 0.1 * noise(generator);
      input.x = x.data();
      input.nthreads = nthreads;
      input.list = list;
      const Evaluation &found = engine->evaluate(input);
      expect("the energy", found.energy, energy_of(x));
      for (std::size_t k = 0; k < x.size(); ++k) {
        std::vector<double> direction(x.size(), 0.0);
        direction[k] = 1.0;
        expect("a force", found.force[k], -derivative(x, direction));
      }
      for (int k = 0; k < 9; ++k) {    // xx yy zz xy xz yz yx zx zy
        const int a = virial_component(k) / 3, b = virial_component(k) % 3;
        std::vector<double> direction(x.size(), 0.0);
        for (int i = 0; i < NATOMS; ++i) direction[3 * i + b] = x[3 * i + a];
        expect("the virial", found.virial[k], -derivative(x, direction));
        if (k >= 6) continue;
        double sum = 0.0;
        for (int i = 0; i < NATOMS; ++i) sum += found.atom_virial[6 * i + k];
        expect("the sum of virials of atoms", sum, found.virial[k]);
      }
    }
  // A list that lasts while atoms wander and, at times, one of them jumps: the same bits as with a
  // list of each step.
  const auto other = network->engine({Precision::exact, std::vector<bool>(NSPECIES, true)});
  for (const int nthreads : {1, 3}) {
    std::vector<double> wandering = x;
    input.x = wandering.data();
    input.nthreads = nthreads;
    input.list = 10 + nthreads;
    for (int step = 0; step < 300; ++step) {
      for (double &component : wandering) component += 0.1 * noise(generator);
      if (step % 50 == 40) wandering[3 * (step % NATOMS)] += 0.7;
      const Evaluation &found = engine->evaluate(input);
      expect("the energy with a list of before", found.energy, energy_of(wandering));
      Input anew = input;
      anew.list = 0;
      const Evaluation &expected = other->evaluate(anew);
      if (!std::equal(found.force, found.force + 3 * NATOMS, expected.force)) {
        std::cout << "forces with a list of before are other ones\n";
        ++failures;
      }
    }
  }
  return failures > 0;
}
