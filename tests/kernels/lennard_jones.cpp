// SPDX-License-Identifier: GPL-2.0-or-later

// A whole family of models for the driver of the CPU (cpu/program.h): Lennard-Jones. Below it what
// it gives is compared with differences of the energies of pairs. Exits with 1 where that differs.

#include "cpu/driver.h"
#include "dp/pair_terms.h"

#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace pwmlff;

// [example]
/// E_i = half of the sum over j of e(r),   e(r) = 4 epsilon ((sigma/r)^12 - (sigma/r)^6),   r < rc
struct LennardJones {
  double epsilon, sigma, rc;    // eV, angstrom

  double energy(double r, double &slope) const
  {
    const double s6 = std::pow(sigma / r, 6);
    slope = -24.0 * epsilon * (2.0 * s6 * s6 - s6) / r;
    return 4.0 * epsilon * (s6 * s6 - s6);
  }
};

class LennardJonesWorker : public Worker {
  struct Alone {    // no other worker adds to what a worker adds to
    void add(double *target, double value) const { *target += value; }
  };

 public:
  LennardJonesWorker(const LennardJones &model, int nspecies) : model(model), nspecies(nspecies) {}

  void run(int, const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
           PartialSums &sums) override
  {
    for (int k = 0; k < nblocks; ++k)
      for (int c = 0; c < blocks[k].count; ++c)
        add_center(plan, plan.order[blocks[k].first + c], sums);
  }

 private:
  void add_center(const BlockPlan &plan, int i, PartialSums &sums) const
  {
    const Input &input = *plan.input;
    const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
    for (int k = first[0]; k < first[nspecies]; ++k) {    // of all species
      const int j = input.candidate[k];
      double d[3], square = 0.0, slope = 0.0, force[3];
      for (int c = 0; c < 3; ++c) d[c] = input.x[3 * j + c] - input.x[3 * i + c];
      for (const double component : d) square += component * component;
      if (square >= model.rc * model.rc) continue;
      const double r = std::sqrt(square);
      plan.atom_energy[i] += 0.5 * model.energy(r, slope);
      for (int c = 0; c < 3; ++c) {
        force[c] = -0.5 * slope * d[c] / r;    // on j
        sums.force[3 * j + c] += force[c];
        sums.force[3 * i + c] -= force[c];
      }
      for (int a = 0; a < 9; ++a) sums.virial[a] += d[a / 3] * force[a % 3];
      if (sums.atom_virial || sums.centroid_virial)
        spread_virial(Alone(), d, force, i, j, sums.atom_virial, sums.centroid_virial);
    }
  }

  const LennardJones model;
  const int nspecies;
};

class LennardJonesProgram : public Program {
 public:
  LennardJonesProgram(const LennardJones &model, int nspecies) : model(model), nspecies(nspecies) {}
  Worker *make_worker() override { return new LennardJonesWorker(model, nspecies); }
  int block_size() const override { return 1; }
  std::size_t table_bytes() const override { return 0; }

 private:
  const LennardJones model;
  const int nspecies;
};

std::unique_ptr<FusedEngine> make_engine(const LennardJones &model, int nspecies)
{
  return std::make_unique<CpuEngine>(std::make_unique<LennardJonesProgram>(model, nspecies),
                                     std::vector<bool>(nspecies, true));
}
// [example]

constexpr LennardJones MODEL{0.02, 2.5, 5.0};
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

  const auto engine = make_engine(MODEL, NSPECIES);
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
  return failures > 0;
}
