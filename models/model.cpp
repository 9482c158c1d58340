/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "model.h"

#include "dp_model.h"
#include "edge_model.h"
#include "model_file.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <stdexcept>

namespace pwmlff::models {

std::unique_ptr<Model> load_model(const std::string &file, const std::string &contents,
                                  const EngineOptions &options)
try {
  const ModelFile opened(file, contents);
  ModelInfo info = opened.describe();
  const std::string kind = opened.text("model_type", "DP");    // older DP files do not say
  if (kind == "DP") return std::make_unique<DPModel>(opened, std::move(info), options);
  if (kind == "EDGE") return std::make_unique<EdgeModel>(opened, std::move(info), options);
  throw std::runtime_error("model file " + in_quotes(file) + " is of model_type " +
                           in_quotes(kind) + ", but pair_style pwmlff runs DP and EDGE");
} catch (const c10::Error &error) {
  throw std::runtime_error("model file " + in_quotes(file) +
                           " cannot be used: " + first_line(error));
}

int hops(const ModelInfo &info)
{
  if (!info.takes_edges) return -1;
  constexpr double ROUNDING = 1e-9;    // of a range that is a multiple of the cutoff
  return static_cast<int>(std::ceil(info.interaction_range / info.cutoff - ROUNDING)) - 1;
}

int num_threads() { return at::get_num_threads(); }

void set_num_threads(int nthreads) { at::set_num_threads(nthreads); }

}    // namespace pwmlff::models
