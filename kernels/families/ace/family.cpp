// SPDX-License-Identifier: GPL-2.0-or-later

// ACE: what the other parts know it by.

#include "../../core/family.h"
#include "../../core/cpu/driver.h"
#include "../../core/cpu/instruction_set.h"
#include "cpu/ace_program.h"
#include "plain_ace.h"
#include "read_ace.h"

#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

/// Whether float32 is enough for radial functions and harmonics: energies of atoms are then off by
/// up to 3e-9 of the sum of their terms, and are to be right to 5e-6 eV. Terms of Cu-PBE-core-rep
/// add up to 5e4 eV, those of other potentials to less than 100 eV.
bool may_be_single(const AceNetwork &network, const EngineSettings &settings)
{
  constexpr double LARGEST = 500.0;
  return settings.precision == Precision::mixed &&
         ace_size_of_terms(network, settings.present) < LARGEST;
}

/// What the program refers to; made before it.
struct HasAceNetwork {
  const AceEngineNetwork network;
};

class AceEngine : HasAceNetwork, public CpuEngine {
 public:
  AceEngine(const AceNetwork &source, const EngineSettings &settings) :
      HasAceNetwork{AceEngineNetwork(source, settings.present)},
      CpuEngine(std::unique_ptr<Program>(
                    PWMLFF_IN_USE(make_ace_program(network, may_be_single(source, settings)))),
                settings.present)
  {
    has_grade_ = source.species[0].has_grade();
  }
};

class AceFamilyNetwork : public Network {
 public:
  explicit AceFamilyNetwork(AceNetwork network) : network(std::move(network)) {}

  NetworkInfo info() const override
  {
    NetworkInfo result;
    result.atom_type = network.atom_type;
    result.cutoff = network.cutoff();
    result.has_gpu_code = false;
    result.has_tables = false;    // exact is the same: tables are part of the model
    result.has_grade = network.species[0].has_grade();
    result.nparameters = network.chemical.size();
    for (const AceBond &bond : network.bonds) result.nparameters += bond.crad.size();
    for (const AceSpecies &species : network.species)
      result.nparameters += species.coefficients.size();
    return result;
  }
  std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const override
  {
    if (settings.device) throw std::runtime_error("there is no code of it for GPUs");
    return std::make_unique<AceEngine>(network, settings);
  }
  std::unique_ptr<FusedEngine> plain() const override
  {
    return std::make_unique<PlainAce>(network);
  }

 private:
  const AceNetwork network;
};

std::unique_ptr<Network> read(const Arrays &arrays)
{
  return std::make_unique<AceFamilyNetwork>(ace_of(arrays));
}

Arrays import(std::string_view contents) { return ace_arrays(read_ace(contents)); }

}    // namespace

extern const Family ace_family;
const Family ace_family = {"ace", "ACE", read, looks_like_ace, import};

}    // namespace pwmlff
