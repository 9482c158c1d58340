// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_model.h"

#include "../engine_choice.h"
#include "dp/tables.h"
#include "nep/gpu/nep_gpu_engine.h"
#include "nep/nep_engine.h"
#include "nep/plain_nep.h"
#include "nep/read_nep.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pwmlff::models {
namespace {

ModelInfo describe(const std::string &file, pwmlff::NepNetwork &network)
{
  ModelInfo info{};
  info.file = file;
  info.kind = "NEP";
  info.units = "metal";
  info.cutoff = info.interaction_range = network.cutoff();
  info.atom_type = network.atom_type;
  info.takes_temperature = network.temperature;
  for (const std::vector<double> *part : network.learned())
    info.nparameters += static_cast<std::int64_t>(part->size());
  info.dtype = "float64";
  // A training leaves the last layer of such an element at zero: nep.txt has no other place.
  for (int s = 0; s < network.nspecies(); ++s) {
    const auto first = network.last.begin() + s * network.nlast();
    if (std::all_of(first, first + network.nlast(), [](double w) { return w == 0.0; }))
      info.without_data.push_back(network.atom_type[s]);
  }
  info.warnings = network.warnings;
  return info;
}

/// The formulas as they stand, on the CPU.
class PlainModel : public Original {
 public:
  PlainModel(ModelInfo info, pwmlff::NepNetwork network) :
      Original(std::move(info)), plain(std::move(network))
  {
  }

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "plain"; }
  std::string engine() const override { return "plain, float64"; }
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return true; }
  Gate gate() const override { return gate_of("exact"); }
  const Evaluation &evaluate(const Input &input) override { return plain.evaluate(input); }

  const pwmlff::NepNetwork &network() const { return plain.network(); }

 private:
  pwmlff::PlainNep plain;
};

class NepModel : public EngineChoice {
 public:
  NepModel(std::unique_ptr<PlainModel> plain, const EngineOptions &options) :
      EngineChoice(std::move(plain), options)
  {
    if (options.engine == Engine::torchscript)
      throw std::runtime_error("model file " + in_quotes(info_.file) +
                               " is a NEP, which has no TorchScript; use engine auto or fused");
  }

 protected:
  std::vector<Candidate> candidates(const std::vector<bool> &present) const override
  {
    const auto make = [=, this](const std::string &precision,
                                std::shared_ptr<pwmlff::Device> device) {
      const auto &network = static_cast<const PlainModel &>(*original).network();
      const bool single = pwmlff::dp_precision(precision) == pwmlff::DPPrecision::mixed;
      if (device) return pwmlff::make_nep_gpu_engine(std::move(device), network, single, present);
      return pwmlff::make_nep_engine(network, single, present);
    };
    return fused_candidates(make, false);
  }
};

}    // namespace

std::unique_ptr<Model> make_nep_model(const std::string &file, const std::string &contents,
                                      const EngineOptions &options)
{
  pwmlff::NepNetwork network;
  try {
    network = pwmlff::read_nep(contents);
  } catch (const std::exception &error) {
    throw std::runtime_error("model file " + in_quotes(file) + " " + error.what());
  }
  ModelInfo info = describe(file, network);
  return std::make_unique<NepModel>(
      std::make_unique<PlainModel>(std::move(info), std::move(network)), options);
}

}    // namespace pwmlff::models
