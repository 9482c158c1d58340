// SPDX-License-Identifier: GPL-2.0-or-later

// A family of models in one file: Lennard-Jones. Its files are a line,
//
//   lennard-jones EPSILON SIGMA CUTOFF ATOMIC_NUMBER...        eV and angstrom
//
// Copied to kernels/families/lennard_jones, with a line add(lennard_jones) in families.h, it runs
// in lmp. Code for instruction sets and for GPUs would be in cpu/ and gpu/ beside it.

#include "core/family.h"
#include "core/cpu/driver.h"
#include "core/virial_terms.h"

#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pwmlff {
namespace {

/// E_i = half of the sum over j of e(r),   e(r) = 4 epsilon ((sigma/r)^12 - (sigma/r)^6),   r < rc
struct LennardJones {
  double epsilon, sigma, rc;    // eV, angstrom
  std::vector<int> atom_type;

  double energy(double r, double &slope) const
  {
    const double s6 = std::pow(sigma / r, 6);
    slope = -24.0 * epsilon * (2.0 * s6 * s6 - s6) / r;
    return 4.0 * epsilon * (s6 * s6 - s6);
  }
};

class LennardJonesWorker : public Worker {
 public:
  explicit LennardJonesWorker(const LennardJones &model) :
      model(model), nspecies(static_cast<int>(model.atom_type.size()))
  {
  }

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

  const LennardJones &model;
  const int nspecies;
};

class LennardJonesProgram : public Program {
 public:
  explicit LennardJonesProgram(LennardJones model) : model(std::move(model)) {}
  Worker *make_worker() override { return new LennardJonesWorker(model); }
  int block_size() const override { return 1; }
  double cutoff() const override { return model.rc; }
  std::size_t table_bytes() const override { return 0; }

 private:
  const LennardJones model;
};

class LennardJonesNetwork : public Network {
 public:
  explicit LennardJonesNetwork(LennardJones model) : model(std::move(model)) {}

  NetworkInfo info() const override
  {
    NetworkInfo result;
    result.atom_type = model.atom_type;
    result.cutoff = model.rc;
    result.has_tables = false;
    result.nparameters = 2;
    return result;
  }
  std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const override
  {
    if (settings.device) throw std::runtime_error("there is no code of it for GPUs");
    return std::make_unique<CpuEngine>(std::make_unique<LennardJonesProgram>(model),
                                       settings.present);
  }
  /// It is as plain as it can be.
  std::unique_ptr<FusedEngine> plain() const override
  {
    return engine({Precision::exact, std::vector<bool>(model.atom_type.size(), true)});
  }

 private:
  const LennardJones model;
};

std::unique_ptr<Network> read(const Arrays &arrays)
{
  return std::make_unique<LennardJonesNetwork>(
      LennardJones{arrays.number("epsilon"), arrays.number("sigma"), arrays.number("cutoff"),
                   arrays.integers("atom_type", 1, 118)});
}

bool recognizes(std::string_view contents) { return contents.starts_with("lennard-jones "); }

Arrays import(std::string_view contents)
{
  std::istringstream words{std::string(contents)};
  std::string word;
  double epsilon = 0.0, sigma = 0.0, cutoff = 0.0;
  std::vector<int> atom_type;
  words >> word >> epsilon >> sigma >> cutoff;
  for (int number = 0; words >> number;) atom_type.push_back(number);
  if (!words.eof() || atom_type.empty() || !(cutoff > 0.0))
    throw std::runtime_error("holds '" + std::string(contents.substr(0, 80)) +
                             "', expected 'lennard-jones EPSILON SIGMA CUTOFF ATOMIC_NUMBER...'");
  Arrays arrays("lennard_jones");
  arrays.set("epsilon", epsilon);
  arrays.set("sigma", sigma);
  arrays.set("cutoff", cutoff);
  arrays.set("atom_type", atom_type);
  return arrays;
}

}    // namespace

extern const Family lennard_jones_family;
const Family lennard_jones_family = {"lennard_jones", "LJ", read, recognizes, import};

}    // namespace pwmlff
