// SPDX-License-Identifier: GPL-2.0-or-later

// A kind of models that the project does not have, to show what one takes: Lennard-Jones, cut at
// the cutoff.

#include "models/model.h"
#include "models/model_file.h"

namespace pwmlff::models {
namespace {

class LennardJones : public Model {
 public:
  LennardJones(const ModelFile &file, ModelInfo info) :
      Model(std::move(info)), epsilon(file.number("epsilon")), sigma(file.number("sigma"))
  {
    info_.kind = "LJ";
    file.describe_limits(info_, {"cutoff", "", ""});
  }

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "plain"; }
  std::string engine() const override { return "plain, float64"; }
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return false; }

  const Evaluation &evaluate(const Input &input) override
  {
    const int ncenters = input.ncenters, nspecies = static_cast<int>(info_.atom_type.size());
    energies.assign(ncenters, 0.0);
    forces.assign(3 * static_cast<std::size_t>(input.nrows), 0.0);
    result = {};
    double virial[9] = {};
    for (int i = 0; i < ncenters; ++i)
      for (int k = input.first[i * nspecies]; k < input.first[(i + 1) * nspecies]; ++k) {
        const int j = input.candidate[k];
        const double *const xi = input.x + 3 * i, *const xj = input.x + 3 * j;
        const double r[3] = {xj[0] - xi[0], xj[1] - xi[1], xj[2] - xi[2]};
        const double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
        if (square >= info_.cutoff * info_.cutoff) continue;
        const double s = sigma * sigma / square, s6 = s * s * s;
        energies[i] += 2.0 * epsilon * (s6 * s6 - s6);    // half of a pair
        const double slope = 2.0 * epsilon * (6.0 * s6 - 12.0 * s6 * s6) / square;    // dE/dr / r
        for (int d = 0; d < 3; ++d) {
          forces[3 * i + d] += slope * r[d];
          forces[3 * j + d] -= slope * r[d];
        }
        for (int v = 0; v < 9; ++v) virial[v] -= slope * r[v / 3] * r[v % 3];
      }
    for (const double energy : energies) result.energy += energy;
    result.virial = in_order_of_lammps(virial);
    result.atom_energy = energies.data();
    result.force = forces.data();
    return result;
  }

 private:
  double epsilon, sigma;
  std::vector<double> energies, forces;
  Evaluation result{};
};

const bool registered = [] {
  register_kind(
      {"LJ",
       [](const ModelFile &file, ModelInfo info, const EngineOptions &) -> std::unique_ptr<Model> {
         return std::make_unique<LennardJones>(file, std::move(info));
       }});
  return true;
}();

}    // namespace
}    // namespace pwmlff::models
