// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine_choice.h"

#include "placement/device_mapping.h"

#include <stdexcept>

namespace pwmlff::models {

void EngineChoice::attempt(const Candidate &candidate, const std::vector<bool> &present)
{
  if (active) return;
  std::string reason;
  active = verified(*original, present, candidate.gate, candidate.make, reason);
  if (!active) reasons += (reasons.empty() ? "not " : "; not ") + candidate.name + ": " + reason;
}

void EngineChoice::attempt_original_on_gpu(const std::vector<bool> &present)
{
  if (original->has_gpu_code())
    attempt({original->name() + " on the GPU", true, original->gate(),
             [this] { return original->copy_to_gpu(options.gpu); }},
            present);
  else if (!active && reasons.empty())
    reasons = "not on the GPU: for kind " + info_.kind + " there is code for CPUs alone";
}

void EngineChoice::select_species(const std::vector<bool> &present)
{
  active.reset();
  reasons.clear();
  original->select_species(present);
  const std::vector<Candidate> faster = candidates(present);
  for (const Candidate &candidate : faster)
    if (candidate.on_gpu) attempt(candidate, present);
  if (options.gpu != pwmlff::CPU && options.engine != Engine::fused)
    attempt_original_on_gpu(present);
  if (!active && options.gpu_demanded)
    throw std::runtime_error(
        "model file " + in_quotes(info_.file) + " cannot run on a GPU: " +
        (reasons.empty() ? "what stands in for one runs no TorchScript" : reasons) +
        "; use device auto or cpu");
  for (const Candidate &candidate : faster)
    if (!candidate.on_gpu) attempt(candidate, present);
  if (!active && options.engine == Engine::fused)
    throw std::runtime_error("model file " + in_quotes(info_.file) +
                             " is not what the fused engine computes: " + reasons +
                             "; use engine auto" +
                             (original->name() == "torchscript" ? " or torchscript" : ""));
}

std::string EngineChoice::engine() const
{
  return in_use().engine() + (on_gpu() ? ", on the GPU" : "") +
         (reasons.empty() ? "" : " (" + reasons + ")");
}

}    // namespace pwmlff::models
