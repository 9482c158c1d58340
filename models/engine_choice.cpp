// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine_choice.h"

#include "fused_model.h"
#include "placement/device_mapping.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace pwmlff::models {
namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr Gate ANY{INFINITE, INFINITE, INFINITE};

}    // namespace

void EngineChoice::attempt(const Candidate &candidate, const std::vector<bool> &present)
{
  if (active) return;
  const auto expect = [&]() -> const Expected & {
    if (!expected_) expected_ = original->expected(present);
    return *expected_;
  };
  std::string why_not;
  active = verified(expect, present, candidate.gate, candidate.make, why_not);
  if (!active) reasons += (reasons.empty() ? "not " : "; not ") + candidate.name + ": " + why_not;
}

std::vector<EngineChoice::Candidate> EngineChoice::fused_candidates(
    const pwmlff::Network *network, const std::string &unreadable,
    const std::vector<bool> &present) const
{
  std::vector<Candidate> result;
  std::vector<std::string> precisions = {options.precision};
  if (options.precision == "mixed") precisions.emplace_back("double");
  const bool gpu = (options.gpu != pwmlff::CPU || !gpu_stand_in().empty()) &&
                   (!network || network->info().has_gpu_code);
  const bool tables = !network || network->info().has_tables;
  for (const std::string &precision : precisions) {
    const std::string suffix = precisions.size() > 1 ? ", precision " + precision : "";
    Gate gate = gate_of(precision == "double" && !tables ? "exact" : precision);
    if (original->gate().force > gate.force) gate = original->gate();    // its own rounding
    const auto fused = [=, this](std::shared_ptr<pwmlff::Device> device) {
      if (!network) throw std::runtime_error(unreadable);
      return std::make_unique<FusedModel>(
          info_, precision,
          network->engine({pwmlff::precision_of(precision), present, std::move(device)}));
    };
    if (gpu)
      result.push_back({"fused on the GPU" + suffix, true, true, times_host_alone() ? ANY : gate,
                        [=, this] { return fused(shared_device(options.gpu)); }});
    result.push_back({"fused" + suffix, false, true, gate, [=] { return fused(nullptr); }});
  }
  return result;
}

void EngineChoice::attempt_original_on_gpu(const std::vector<bool> &present)
{
  if (original->has_gpu_code())
    attempt({original->name() + " on the GPU", true, false, original->gate(),
             [this] { return original->copy_to_gpu(options.gpu); }},
            present);
  else if (!active && reasons.empty())
    reasons = "not on the GPU: for kind " + info_.kind + " there is code for CPUs alone";
}

void EngineChoice::select_species(const std::vector<bool> &present)
{
  active.reset();
  reasons.clear();
  expected_.reset();
  original->select_species(present);
  const std::vector<Candidate> faster = candidates(present);
  // What stands in for a GPU runs no TorchScript.
  const bool takes_original = options.gpu != pwmlff::CPU && options.engine != Engine::fused;
  const bool has_gpu_code = std::ranges::any_of(faster, &Candidate::on_gpu);
  for (const Candidate &candidate : faster)
    if (candidate.on_gpu) attempt(candidate, present);
  if (takes_original && !has_gpu_code) attempt_original_on_gpu(present);
  for (const Candidate &candidate : faster)
    if (!candidate.on_gpu && candidate.fused && !options.gpu_demanded) attempt(candidate, present);
  if (takes_original && has_gpu_code) attempt_original_on_gpu(present);
  if (!active && options.gpu_demanded)
    throw std::runtime_error(
        "model file " + in_quotes(info_.file) + " cannot run on a GPU: " +
        (reasons.empty() ? "what stands in for one runs no TorchScript" : reasons) +
        "; use device auto or cpu");
  for (const Candidate &candidate : faster)
    if (!candidate.on_gpu && !candidate.fused) attempt(candidate, present);
  if (!active && options.engine == Engine::fused)
    throw std::runtime_error("model file " + in_quotes(info_.file) +
                             " is not what the fused engine computes: " + reasons +
                             "; use engine auto" +
                             (original->name() == "torchscript" ? " or torchscript" : ""));
  if (!active) original->get_ready();
}

std::string EngineChoice::engine() const
{
  return in_use().engine() + (on_gpu() ? ", on the GPU" : "") +
         (reasons.empty() ? "" : " (" + reasons + ")");
}

}    // namespace pwmlff::models
