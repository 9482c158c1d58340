// SPDX-License-Identifier: GPL-2.0-or-later

// ACE: forces and virials of the plain evaluation against finite differences, and the engine
// against it: forms of files, precisions, instruction sets, threads, virials of atoms, species that
// are absent. Exits with 1 where something differs. Arguments: files to try in place of random
// ones.

#include "ace_files.h"
#include "comparison.h"
#include "core/family.h"
#include "families/ace/plain_ace.h"
#include "families/ace/read_ace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;
using ::compare;
using ace_files::uniform;

/// Atoms in a box and one far from all others; the last are no centers. Each is a candidate of each
/// other, but those of species `absent`, which have species -1.
struct Cluster {
  Cluster(int natoms, double edge, double closest, int nspecies, int absent)
  {
    while (static_cast<int>(species.size()) < natoms) {
      const double trial[3] = {uniform(0, edge), uniform(0, edge), uniform(0, edge)};
      bool free = true;
      for (std::size_t i = 0; i < species.size(); ++i)
        free &= std::hypot(trial[0] - x[3 * i], trial[1] - x[3 * i + 1], trial[2] - x[3 * i + 2]) >
                closest;
      if (!free) continue;
      x.insert(x.end(), trial, trial + 3);
      const int s = static_cast<int>(species.size()) % nspecies;
      species.push_back(s == absent ? -1 : s);
    }
    x.insert(x.begin(), {100.0, 0.0, 0.0});
    species.insert(species.begin(), absent == 0 ? 1 : 0);
    input.nrows = static_cast<int>(species.size());
    input.ncenters = input.nrows - 2;
    for (int i = 0; i < input.ncenters; ++i)
      for (int s = 0; s < nspecies; ++s) {
        first.push_back(static_cast<int>(candidate.size()));
        for (int j = 0; j < input.nrows; ++j)
          if (j != i && species[j] == s) candidate.push_back(j);
      }
    first.push_back(static_cast<int>(candidate.size()));
    input.x = x.data();
    input.species = species.data();
    input.first = first.data();
    input.candidate = candidate.data();
    input.want_atom_virial = input.want_centroid_virial = true;
  }
  Cluster(const Cluster &) = delete;

  std::vector<double> x;
  std::vector<int> species, first, candidate;
  Input input;
};

/// @param close  allowed errors of energies, for forces of at most 1 eV/angstrom
void compare(const std::string &name, const Input &input, const Evaluation &found,
             const Evaluation &wanted, double close)
{
  const std::size_t nrows = input.nrows;
  double scale = 1.0;
  for (std::size_t k = 0; k < 3 * nrows; ++k) scale = std::max(scale, std::abs(wanted.force[k]));
  close *= scale;
  compare(name + "energies", found.atom_energy, wanted.atom_energy, input.ncenters, close);
  compare(name + "energy", &found.energy, &wanted.energy, 1, 100 * close);
  compare(name + "forces", found.force, wanted.force, 3 * nrows, 10 * close);
  compare(name + "virials", found.virial.data(), wanted.virial.data(), 9, 100 * close);
  compare(name + "atom virials", found.atom_virial, wanted.atom_virial, 6 * nrows, 30 * close);
  compare(name + "centroid virials", found.centroid_virial, wanted.centroid_virial, 9 * nrows,
          30 * close);
}

/// Forces and the virial of the plain evaluation by differences of its energies. Where bins of the
/// table meet, second derivatives jump by little.
void check_derivatives(const std::string &name, const AceNetwork &network)
{
  PlainAce plain(network);
  const Cluster cluster(9, 4.0, 1.3, network.nspecies(), -1);
  Input input = cluster.input;
  const Evaluation found = plain.evaluate(input);
  const std::vector<double> force(found.force, found.force + 3 * input.nrows);
  const std::array<double, 9> virial = found.virial;
  double scale = 1.0;
  for (const double f : force) scale = std::max(scale, std::abs(f));

  constexpr double step = 2e-5;
  const auto slope_along = [&](const std::vector<double> &displacement) {
    const auto energy = [&](double s) {
      std::vector<double> x = cluster.x;
      for (std::size_t k = 0; k < x.size(); ++k) x[k] += s * displacement[k];
      input.x = x.data();
      return plain.evaluate(input).energy;
    };
    const double near = energy(step) - energy(-step), far = energy(2 * step) - energy(-2 * step);
    return -(8 * near - far) / (12 * step);
  };
  for (int k = 0; k < 3 * input.nrows; ++k) {
    std::vector<double> displacement(3 * static_cast<std::size_t>(input.nrows), 0.0);
    displacement[k] = 1.0;
    const double slope = slope_along(displacement);
    compare(name + ": differences, force", &force[k], &slope, 1, 2e-8 * scale);
  }
  for (int k = 0; k < 3; ++k) {    // xx yy zz
    std::vector<double> displacement(3 * static_cast<std::size_t>(input.nrows), 0.0);
    for (int i = 0; i < input.nrows; ++i) displacement[3 * i + k] = cluster.x[3 * i + k];
    const double slope = slope_along(displacement);
    compare(name + ": differences, virial", &virial[k], &slope, 1, 1e-6 * scale);
  }
}

/// @param absent  a species, or -1
void check_engine(const std::string &name, const AceNetwork &source, int absent)
{
  const auto network = read_network(Arrays::read(ace_arrays(source).written()));
  std::vector<bool> present(source.species.size(), true);
  if (absent >= 0) present[absent] = false;
  const int nspecies = static_cast<int>(present.size());
  PlainAce plain(source);
  const Cluster small(3, 3.0, 1.1, nspecies, absent), large(45, 8.0, 1.1, nspecies, absent);
  for (const Cluster *cluster : {&small, &large}) {
    Input input = cluster->input;
    const Evaluation wanted = plain.evaluate(input);
    for (const Precision precision : {Precision::exact, Precision::tables, Precision::mixed}) {
      const bool single = precision == Precision::mixed;
      const auto engine = network->engine({precision, present});
      for (const int nthreads : {1, 3}) {
        input.nthreads = nthreads;
        compare(name + ", " + engine->processor() + (single ? ", mixed: " : ": "), input,
                engine->evaluate(input), wanted, single ? 2e-6 : 2e-13);
      }
    }
  }
}

}    // namespace

int main(int argc, char **argv)
{
  std::vector<std::pair<std::string, std::string>> files;
  for (int k = 1; k < argc; ++k) {
    std::ifstream file(argv[k]);
    files.emplace_back(argv[k], std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc == 1)
    for (const ace_files::Form &form : ace_files::forms())
      files.emplace_back(form.grace ? "GRACE/FS" : form.radial + ", " + form.inner, file(form));
  for (const auto &[name, text] : files) check_derivatives(name, read_ace(text));
  for (const char *set : {"baseline", "avx2", "avx512"}) {
    setenv("PWMLFF_CPU", set, 1);
    try {
      for (const auto &[name, text] : files) {
        const AceNetwork network = read_ace(text);
        check_engine(name, network, -1);
        if (network.nspecies() > 1) check_engine(name + ", one absent", network, 1);
      }
    } catch (const std::runtime_error &error) {
      if (std::string(set) == "baseline") throw;    // this processor does not run the others
    }
  }
  return failures > 0;
}
