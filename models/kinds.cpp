// SPDX-License-Identifier: GPL-2.0-or-later

// The kinds of models that are TorchScript, and what else the library without torch takes from this
// one.

#include "core/threads.h"
#include "dp/dp_model.h"
#include "edge/edge_model.h"
#include "model_file.h"

#include <ATen/Parallel.h>

#include <stdexcept>

namespace pwmlff::models {

namespace {

template <class T>
std::unique_ptr<Model> make(const ModelFile &file, ModelInfo info, const EngineOptions &options)
{
  return std::make_unique<T>(file, std::move(info), options);
}

std::vector<Kind> &kinds()
{
  static std::vector<Kind> known = {
      {"DP", make<DPModel>, true},
      {"EDGE", make<EdgeModel>},
  };
  return known;
}

std::string names_of_kinds()
{
  std::string names;
  for (std::size_t k = 0; k < kinds().size(); ++k)
    names += (k == 0 ? "" : k + 1 < kinds().size() ? ", " : " and ") + kinds()[k].name;
  return names;
}

std::unique_ptr<Model> load(const std::string &file, const std::string &contents,
                            const EngineOptions &options)
try {
  ModelFile opened(file, contents);
  const std::string name = opened.model_type();
  for (const Kind &kind : kinds()) {
    if (kind.name != name) continue;
    opened.prepare(kind);
    return kind.make(opened, opened.describe(), options);
  }
  throw std::runtime_error("model file " + in_quotes(file) + " is of model_type " +
                           in_quotes(name) + ", but pwmlff runs " + names_of_kinds());
} catch (const c10::Error &error) {
  throw std::runtime_error("model file " + in_quotes(file) +
                           " cannot be used: " + first_line(error));
}

void set_num_threads(int nthreads) { at::set_num_threads(pwmlff::usable_threads(nthreads)); }

// A failure ends the process. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const bool registered =
    (register_torch({load, at::get_num_threads, set_num_threads, open_torch_cuda}), true);

}    // namespace

void register_kind(const Kind &kind) { kinds().push_back(kind); }

}    // namespace pwmlff::models
