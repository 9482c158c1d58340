// SPDX-License-Identifier: GPL-2.0-or-later

// Verifies models that differ in one number against each other, and prints what that gives.

#include "models/verification.h"

#include <iostream>
#include <limits>

namespace pwmlff::models {

// Each atom has energy 1 and force 1; one number of one cluster (by its number of atoms) is
// another.
struct Constant : Model {
  static ModelInfo about()
  {
    ModelInfo info{};
    info.cutoff = 5.0;
    info.max_neighbor = 100;
    info.atom_type = {8, 72};
    return info;
  }
  Constant() : Model(about()) {}
  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "constant"; }
  std::string engine() const override { return "constant"; }
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return false; }
  const Evaluation &evaluate(const Input &input) override
  {
    const std::size_t n = input.ncenters;
    energies.assign(n, 1.0);
    forces.assign(3 * n, 1.0);
    result.energy = static_cast<double>(n);
    result.virial.fill(1.0);
    if (n == natoms) change(*this);
    result.atom_energy = energies.data();
    result.force = forces.data();
    return result;
  }

  std::size_t natoms = 0;
  void (*change)(Constant &) = nullptr;
  std::vector<double> energies, forces;
  Evaluation result{};
};

}    // namespace pwmlff::models

int main()
{
  using pwmlff::models::Constant;
  constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();
  const auto say = [](const char *name, std::size_t natoms, void (*change)(Constant &),
                      bool of_file = false) {
    Constant file, other;
    (of_file ? file : other).natoms = natoms;
    (of_file ? file : other).change = change;
    std::cout << name << ": "
              << difference(expected_of(file, {true, true}), other, {true, true},
                            {1e-8, 1e-8, 1e-6})
              << "\n";
  };
  constexpr std::size_t usual = 25, small = 7;    // with the isolated atom
  say("same", 0, nullptr);
  say("energy NaN", usual, [](Constant &m) { m.energies[3] = NOT_A_NUMBER; });
  say("force NaN", small, [](Constant &m) { m.forces[0] = NOT_A_NUMBER; });
  say("virial NaN", usual, [](Constant &m) { m.result.virial[2] = NOT_A_NUMBER; });
  say("total NaN", usual, [](Constant &m) { m.result.energy = NOT_A_NUMBER; });
  say("total", small, [](Constant &m) { m.result.energy += 1.0; });
  say("force", usual, [](Constant &m) { m.forces[40] += 1e-5; });
  say("rounding", usual, [](Constant &m) { m.forces[40] += 1e-7; });
  say("file NaN", usual, [](Constant &m) { m.energies[3] = NOT_A_NUMBER; }, true);
  say("file NaN at overlap", small, [](Constant &m) { m.energies[3] = NOT_A_NUMBER; }, true);
  return 0;
}
