/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// What kinds of models share that run a file's own code on a GPU.

#ifndef PWMLFF_ON_GPU_H
#define PWMLFF_ON_GPU_H

#include "model_file.h"
#include "proof.h"
#include "scripted.h"

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// A GPU was demanded, and the model cannot use it.
struct NotOnGpu : std::runtime_error {
  NotOnGpu(const ModelInfo &info, const std::string &why) :
      std::runtime_error("model file " + in_quotes(info.file) + " cannot run on a GPU: " + why +
                         "; use device auto or cpu")
  {
  }
};

/// A copy of a model on a GPU that has proved to give there what the original gives on the CPU.
/// @param present  [number of species] that take part
/// @param why_not  set where there is none
template <typename ScriptedModel>
std::unique_ptr<ScriptedModel> proved_on_gpu(ScriptedModel &original,
                                             const std::vector<bool> &present, int gpu,
                                             std::string &why_not)
{
  try {
    auto copy = std::make_unique<ScriptedModel>(original.on(torch_gpu(gpu)));
    why_not = difference(original, *copy, present, gate_of("exact"));
    if (why_not.empty()) return copy;
  } catch (const std::exception &error) {
    why_not = first_line(error);
  }
  return nullptr;
}

/// The end of the line on the engine in the log.
inline std::string describe_device(bool on_gpu, const std::string &why_cpu)
{
  if (on_gpu) return ", on the GPU";
  return why_cpu.empty() ? "" : ", on the CPU (" + why_cpu + ")";
}

}    // namespace pair_pwmlff

#endif
