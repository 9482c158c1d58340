// SPDX-License-Identifier: GPL-2.0-or-later

#include "imported_model.h"

#include "engine_choice.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace pwmlff::models {
namespace {

ModelInfo describe(const std::string &file, const pwmlff::Family &family,
                   const pwmlff::NetworkInfo &network)
{
  ModelInfo info{};
  info.file = file;
  info.kind = family.kind;
  info.units = "metal";
  info.cutoff = info.interaction_range = network.cutoff;
  info.atom_type = network.atom_type;
  info.takes_temperature = network.takes_temperature;
  info.screening = network.screening;
  info.nparameters = static_cast<std::int64_t>(network.nparameters);
  info.dtype = "float64";
  info.without_data = network.without_data;
  info.warnings = network.warnings;
  return info;
}

/// The formulas as they stand, on the CPU.
class PlainModel : public Original {
 public:
  PlainModel(ModelInfo info, std::unique_ptr<pwmlff::FusedEngine> plain) :
      Original(std::move(info)), plain(std::move(plain))
  {
  }

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "plain"; }
  std::string engine() const override { return "plain, float64"; }
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return true; }
  Needs needs() const override { return {0.0, 0, -1, nullptr, plain->exchange_width()}; }
  Gate gate() const override { return gate_of("exact"); }
  const Evaluation &evaluate(const Input &input) override { return plain->evaluate(input); }

 private:
  std::unique_ptr<pwmlff::FusedEngine> plain;
};

class ImportedModel : public EngineChoice {
 public:
  ImportedModel(ModelInfo info, std::unique_ptr<pwmlff::Network> network_,
                const EngineOptions &options) :
      EngineChoice(std::make_unique<PlainModel>(std::move(info), network_->plain()), options),
      network(std::move(network_))
  {
    if (options.engine == Engine::torchscript)
      throw std::runtime_error("model file " + in_quotes(info_.file) + " is a " + info_.kind +
                               ", which has no TorchScript; use engine auto or fused");
  }

 protected:
  std::vector<Candidate> candidates(const std::vector<bool> &present) const override
  {
    return fused_candidates(network.get(), {}, present);
  }

 private:
  const std::unique_ptr<pwmlff::Network> network;
};

}    // namespace

std::unique_ptr<Model> make_imported_model(const std::string &file, const std::string &contents,
                                           const pwmlff::Family &family,
                                           const EngineOptions &options)
{
  std::unique_ptr<pwmlff::Network> network;
  try {
    network = family.read(family.import(contents));
  } catch (const std::exception &error) {
    throw std::runtime_error("model file " + in_quotes(file) + " " + error.what());
  }
  ModelInfo info = describe(file, family, network->info());
  return std::make_unique<ImportedModel>(std::move(info), std::move(network), options);
}

}    // namespace pwmlff::models
