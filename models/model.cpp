// SPDX-License-Identifier: GPL-2.0-or-later

#include "model.h"

#include "core/family.h"
#include "imported_model.h"
#include "recorded_model.h"
#include "torch_not_open.h"

#include <malloc.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <utility>

namespace pwmlff::models {
namespace {

// Of the library with torch, once that is open.
TorchPart registered{};

}    // namespace

void register_torch(const TorchPart &part) { registered = part; }

const TorchPart &torch_part()
{
  // NOLINTNEXTLINE(bugprone-std-exception-baseclass): on purpose
  if (!registered.load) throw TorchNotOpen();
  return registered;
}

std::unique_ptr<Model> load_without_torch(const std::string &file, const std::string &contents,
                                          const EngineOptions &options)
{
  if (const pwmlff::Family *const family = pwmlff::family_of_file(contents))
    return make_imported_model(file, contents, *family, options);
  if (options.engine == Engine::torchscript) return nullptr;
  std::optional<Record> record = read_record(contents);
  return record ? make_recorded_model(file, contents, std::move(*record), options) : nullptr;
}

std::unique_ptr<Model> load_model(const std::string &file, const std::string &contents,
                                  const EngineOptions &options)
{
  std::unique_ptr<Model> model = load_without_torch(file, contents, options);
  return model ? std::move(model) : torch_part().load(file, contents, options);
}

int hops(const ModelInfo &info)
{
  if (!info.takes_edges) return -1;
  constexpr double ROUNDING = 1e-9;    // of a range that is a multiple of the cutoff
  return static_cast<int>(std::ceil(info.interaction_range / info.cutoff - ROUNDING)) - 1;
}

Engine parse_engine(const std::string &name)
{
  if (name == "auto") return Engine::automatic;
  if (name == "fused") return Engine::fused;
  if (name == "torchscript") return Engine::torchscript;
  throw std::invalid_argument("engine is '" + name + "', expected auto, fused or torchscript");
}

std::string checked_precision(const std::string &name)
{
  pwmlff::precision_of(name);
  return name;
}

std::string gpu_stand_in()
{
  const char *const name = std::getenv("PWMLFF_GPU_STAND_IN");
  return name ? name : "";
}

bool times_host_alone() { return gpu_stand_in() == "none"; }

void keep_memory([[maybe_unused]] bool keep)
{
#ifdef __GLIBC__
  static bool kept = false;
  if (keep == kept) return;
  kept = keep;
  constexpr int MANY = 65536, LARGE = 32 << 20;        // where the C library ends up by itself
  mallopt(M_TRIM_THRESHOLD, keep ? -1 : 2 * LARGE);    // -1: the heap's end is never given back
  mallopt(M_MMAP_MAX, keep ? 0 : MANY);                // 0: and nothing lies outside of it
  if (keep) return;
  mallopt(M_MMAP_THRESHOLD, LARGE);
  malloc_trim(0);
#endif
}

}    // namespace pwmlff::models
