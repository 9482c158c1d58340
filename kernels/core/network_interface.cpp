// SPDX-License-Identifier: GPL-2.0-or-later

#include "network_interface.h"

#include "family.h"
#include "gpu/gpu_neighbors.h"
#include "json.h"
#include "threads.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pwmlff;

struct pwmlff_network {
  std::unique_ptr<Network> network;
  std::string arrays, description;    // the latter in JSON
  int nspecies;
};

struct pwmlff_engine {
  std::mutex in_use;
  std::unique_ptr<FusedEngine> engine;
  int nspecies;
  int ncenters = -1, nrows = 0;
  std::uint64_t list = 0;
  std::vector<int> species, first, candidate;
  std::unique_ptr<GpuNeighbors> on_device;
};

namespace {

std::string number(double value)
{
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string integer_text(int value) { return std::to_string(value); }

std::string described(const NetworkInfo &info, const std::string &family)
{
  return "{\"kind\": " + json_text(family_named(family).kind) +
         ", \"atom_type\": " + json_list(info.atom_type, integer_text) +
         ", \"cutoff\": " + number(info.cutoff) +
         ", \"nparameters\": " + std::to_string(info.nparameters) +
         ", \"has_charges\": " + json_truth(info.screening > 0.0) +
         ", \"has_grade\": " + json_truth(info.has_grade) +
         ", \"takes_temperature\": " + json_truth(info.takes_temperature) +
         ", \"without_data\": " + json_list(info.without_data, integer_text) +
         ", \"warnings\": " + json_list(info.warnings, json_text) + "}";
}

std::string described(const FusedEngine &engine)
{
  std::string seconds;
  if (engine.device())
    for (const auto &[kernel, time] : engine.device()->seconds())
      seconds += (seconds.empty() ? "" : ", ") + json_text(kernel) + ": " + number(time);
  return "{\"processor\": " + json_text(engine.processor()) +
         ", \"table_bytes\": " + std::to_string(engine.table_bytes()) +
         ", \"table_error\": " + json_list(engine.table_error(), number) +
         ", \"has_grade\": " + json_truth(engine.has_grade()) + ", \"seconds\": {" + seconds + "}}";
}

/// @throws std::invalid_argument where it leads out of the rows, or is out of order
void check_list(const pwmlff_engine &engine, int ncenters, int nrows, const int32_t *species,
                const int32_t *first, const int32_t *candidate)
{
  const std::size_t lists = static_cast<std::size_t>(std::max(ncenters, 0)) * engine.nspecies;
  if (ncenters < 0 || ncenters > nrows)
    throw std::invalid_argument("there are " + std::to_string(ncenters) + " centers and " +
                                std::to_string(nrows) + " rows; expected no more of the former");
  for (int row = 0; row < nrows; ++row)
    if (species[row] < -1 || species[row] >= engine.nspecies)
      throw std::invalid_argument("species holds " + std::to_string(species[row]) +
                                  ", expected -1 to " + std::to_string(engine.nspecies - 1));
  if (!first) return;
  if (first[0] != 0 || !std::is_sorted(first, first + lists + 1))
    throw std::invalid_argument("first does not ascend from 0");
  for (int k = 0; k < first[lists]; ++k)
    if (candidate[k] < 0 || candidate[k] >= nrows)
      throw std::invalid_argument("candidate holds " + std::to_string(candidate[k]) +
                                  ", expected 0 to " + std::to_string(nrows - 1));
}

void take_list(pwmlff_engine &engine, int ncenters, int nrows)
{
  engine.ncenters = ncenters;
  engine.nrows = nrows;
  ++engine.list;
}

}    // namespace

const char *pwmlff_family_of_file(const char *contents, uint64_t size)
{
  const Family *const family = family_of_file({contents, size});
  return family ? family->name : nullptr;
}

pwmlff_network *pwmlff_read_network(const char *family, const char *contents, uint64_t size)
{
  std::unique_ptr<pwmlff_network> result;
  succeeds([&] {
    const std::string_view text(contents, size);
    if (family && !family_named(family).import)
      throw std::invalid_argument("there are no files of this family");
    const Arrays arrays = family ? family_named(family).import(text) : Arrays::read(text);
    auto made = std::make_unique<pwmlff_network>();
    made->network = read_network(arrays);
    made->arrays = family ? arrays.written() : std::string(text);
    const NetworkInfo info = made->network->info();
    made->nspecies = static_cast<int>(info.atom_type.size());
    made->description = described(info, arrays.family());
    result = std::move(made);
  });
  return result.release();
}

void pwmlff_free_network(pwmlff_network *network) { delete network; }

const char *pwmlff_describe_network(const pwmlff_network *network)
{
  return network->description.c_str();
}

const char *pwmlff_network_arrays(const pwmlff_network *network, uint64_t *size)
{
  *size = network->arrays.size();
  return network->arrays.data();
}

pwmlff_engine *pwmlff_make_engine(const pwmlff_network *network,
                                  const pwmlff_engine_settings *settings)
{
  std::unique_ptr<pwmlff_engine> result;
  succeeds([&] {
    auto made = std::make_unique<pwmlff_engine>();
    made->nspecies = network->nspecies;
    if (std::string_view(settings->precision) == "plain") {
      made->engine = network->network->plain();
      if (!made->engine)
        throw std::invalid_argument("models of this family have no plain evaluation here");
    } else {
      EngineSettings asked;
      asked.precision = precision_of(settings->precision);
      asked.present.assign(settings->present, settings->present + network->nspecies);
      if (*settings->device) asked.device = Device::make(settings->device);
      asked.chunk_bytes = settings->chunk_bytes;
      made->engine = network->network->engine(asked);
    }
    if (made->engine->device())
      made->on_device = std::make_unique<GpuNeighbors>(made->engine->device());
    result = std::move(made);
  });
  return result.release();
}

void pwmlff_free_engine(pwmlff_engine *engine) { delete engine; }

const char *pwmlff_describe_engine(const pwmlff_engine *engine)
{
  thread_local std::string description;
  description = described(*engine->engine);
  return description.c_str();
}

void pwmlff_measure_engine(pwmlff_engine *engine, int enabled)
{
  if (engine->on_device) engine->engine->device()->measure(enabled != 0);
}

int pwmlff_set_engine_neighbors(pwmlff_engine *engine, int ncenters, int nrows,
                                const int32_t *species, const int32_t *first,
                                const int32_t *candidate)
{
  const auto work = [&] {
    const OneCaller caller(engine->in_use, "engine");
    check_list(*engine, ncenters, nrows, species, first, candidate);
    engine->ncenters = -1;
    if (engine->on_device) {
      engine->on_device->assign(ncenters, nrows, engine->nspecies, species, first, candidate);
    } else {
      const std::size_t lists = static_cast<std::size_t>(ncenters) * engine->nspecies;
      engine->species.assign(species, species + nrows);
      engine->first.assign(first, first + lists + 1);
      engine->candidate.assign(candidate, candidate + first[lists]);
    }
    take_list(*engine, ncenters, nrows);
  };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_find_engine_neighbors(pwmlff_engine *engine, int ncenters, int nrows, const double *x,
                                 const int32_t *species, double distance, const int32_t **first,
                                 const int32_t **candidate)
{
  const auto work = [&] {
    const OneCaller caller(engine->in_use, "engine");
    if (!engine->on_device)
      throw std::invalid_argument(
          "the engine for CPUs finds no neighbors, expected them to be set");
    if (!(distance > 0.0))
      throw std::invalid_argument("the distance is " + number(distance) + ", expected above 0");
    check_list(*engine, ncenters, nrows, species, nullptr, nullptr);
    engine->ncenters = -1;
    engine->on_device->update(nrows, x);
    engine->on_device->build(ncenters, nrows, engine->nspecies, species, distance);
    engine->on_device->download(engine->first, engine->candidate);
    *first = engine->first.data();
    *candidate = engine->candidate.data();
    take_list(*engine, ncenters, nrows);
  };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_evaluate_engine(pwmlff_engine *engine, const double *x, int nthreads, double temperature,
                           const pwmlff_engine_results *results)
{
  const auto work = [&] {
    const OneCaller caller(engine->in_use, "engine");
    if (engine->ncenters < 0) throw std::invalid_argument("no neighbors were set");
    if (nthreads < 1)
      throw std::invalid_argument("nthreads is " + std::to_string(nthreads) +
                                  ", expected at least 1");
    Input input;
    input.ncenters = engine->ncenters;
    input.nrows = engine->nrows;
    input.x = x;
    input.list = engine->list;
    input.nthreads = nthreads;
    input.temperature = temperature;
    input.want_atom_virial = results->atom_virial != nullptr;
    input.want_centroid_virial = results->centroid_virial != nullptr;
    input.want_grade = results->grade != nullptr;
    if (input.want_grade && !engine->engine->has_grade())
      throw std::invalid_argument("this engine has no grade");
    if (engine->on_device) {
      engine->on_device->update(engine->nrows, x);
      input.on_device = engine->on_device.get();
    } else {
      input.species = engine->species.data();
      input.first = engine->first.data();
      input.candidate = engine->candidate.data();
    }
    const Evaluation &found = engine->engine->evaluate(input);
    const std::size_t n = engine->ncenters, nrows = engine->nrows;
    *results->energy = found.energy;
    std::copy_n(found.atom_energy, n, results->atom_energy);
    std::copy_n(found.force, 3 * nrows, results->force);
    std::ranges::copy(found.virial, results->virial);
    if (results->atom_virial) std::copy_n(found.atom_virial, 6 * nrows, results->atom_virial);
    if (results->centroid_virial)
      std::copy_n(found.centroid_virial, 9 * nrows, results->centroid_virial);
    if (results->grade) std::copy_n(found.grade, n, results->grade);
  };
  return succeeds(work) ? 0 : -1;
}
