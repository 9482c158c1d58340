// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_model.h"

#include "nep/plain_nep.h"
#include "nep/read_nep.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace pwmlff::models {
namespace {

ModelInfo describe(const std::string &file, const pwmlff::NepNetwork &network)
{
  ModelInfo info{};
  info.file = file;
  info.kind = "NEP";
  info.units = "metal";
  info.cutoff = info.interaction_range = network.cutoff();
  info.atom_type = network.atom_type;
  info.takes_temperature = network.temperature;
  for (const std::vector<double> *part :
       {&network.c_radial, &network.c_angular, &network.weight0, &network.bias0, &network.weight1,
        &network.bias1, &network.last, &network.shift})
    info.nparameters += static_cast<std::int64_t>(part->size());
  info.dtype = "float64";
  info.warnings = network.warnings;
  return info;
}

class NepModel : public Model {
 public:
  NepModel(ModelInfo info, pwmlff::NepNetwork network, const EngineOptions &options) :
      Model(std::move(info)), plain(std::move(network))
  {
    const std::string name = "model file '" + info_.file + "' ";
    if (options.engine == Engine::torchscript)
      throw std::runtime_error(name + "is a NEP, which has no TorchScript; use engine auto or "
                                      "fused");
    if (options.gpu_demanded)
      throw std::runtime_error(name + "cannot run on a GPU: it is a NEP, for which there is code "
                                      "for CPUs alone; use device auto or cpu");
    if (options.gpu >= 0) reasons = "not on the GPU: for a NEP there is code for CPUs alone";
  }

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fused"; }
  std::string engine() const override
  {
    return "fused, precision exact" + (reasons.empty() ? "" : " (" + reasons + ")");
  }
  std::string passed_over() const override { return reasons; }
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(const Input &input) override { return plain.evaluate(input); }

 private:
  pwmlff::PlainNep plain;
  std::string reasons;
};

}    // namespace

std::unique_ptr<Model> make_nep_model(const std::string &file, const std::string &contents,
                                      const EngineOptions &options)
{
  pwmlff::NepNetwork network;
  try {
    network = pwmlff::read_nep(contents);
  } catch (const std::exception &error) {
    throw std::runtime_error("model file '" + file + "' " + error.what());
  }
  ModelInfo info = describe(file, network);
  return std::make_unique<NepModel>(std::move(info), std::move(network), options);
}

}    // namespace pwmlff::models
