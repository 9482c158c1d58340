// SPDX-License-Identifier: GPL-2.0-or-later

#include "record.h"

#include "archive/model_archive.h"
#include "archive/sha256.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace pwmlff::models {
namespace {

using pwmlff::Arrays;

constexpr const char *RECORD = "engine-record";
constexpr const char *CARD = "pwmlff.json";    // as pwmlff.evaluation.archive names it
constexpr const char *WITHOUT_DATA = "elements_without_data";    // as pwmlff.models.saving does
constexpr std::string_view MAGIC = "pwmlff-record 2\n";
constexpr std::size_t DIGEST_LINE = 65;
constexpr int MOST = 1 << 30;
constexpr const char *NETWORK = "network.";

std::vector<double> numbers(const std::vector<bool> &flags) { return {flags.begin(), flags.end()}; }

std::vector<bool> flags(const Arrays &arrays, const std::string &name)
{
  const std::vector<int> values = arrays.integers(name, 0, 1);
  return {values.begin(), values.end()};
}

void add(Arrays &arrays, const ModelInfo &info)
{
  arrays.set_text("kind", info.kind);
  arrays.set_text("units", info.units);
  arrays.set_text("dtype", info.dtype);
  for (std::size_t k = 0; k < info.warnings.size(); ++k)
    arrays.set_text("warning." + std::to_string(k), info.warnings[k]);
  arrays.set("cutoff", info.cutoff);
  arrays.set("interaction_range", info.interaction_range);
  arrays.set("atom_type", info.atom_type);
  arrays.set("takes_edges", info.takes_edges);
  arrays.set("max_neighbor", info.max_neighbor);
  arrays.set("sel", info.sel);
  arrays.set("closest", {info.closest.size()}, info.closest);
  arrays.set("takes_temperature", info.takes_temperature);
  arrays.set("nparameters", static_cast<double>(info.nparameters));
}

ModelInfo info_of(const Arrays &arrays)
{
  ModelInfo info{};
  info.kind = arrays.text("kind");
  info.units = arrays.text("units");
  info.dtype = arrays.text("dtype");
  const auto next = [&] { return "warning." + std::to_string(info.warnings.size()); };
  while (arrays.has_text(next())) info.warnings.push_back(arrays.text(next()));
  info.cutoff = arrays.number("cutoff");
  info.interaction_range = arrays.number("interaction_range");
  info.atom_type = arrays.integers("atom_type", 0, MOST);
  info.takes_edges = arrays.integer("takes_edges", 0, 1) == 1;
  info.max_neighbor = arrays.integer("max_neighbor", 0, MOST);
  info.sel = arrays.integers("sel", 0, MOST);
  info.closest = arrays.get("closest", {-1}).values;
  info.takes_temperature = arrays.integer("takes_temperature", 0, 1) == 1;
  info.nparameters = static_cast<std::int64_t>(arrays.number("nparameters"));
  return info;
}

std::string name_of(std::size_t trial) { return "trial." + std::to_string(trial) + "."; }

void add(Arrays &arrays, const std::string &name, const Record::Trial &trial)
{
  arrays.set(name + "present", {trial.present.size()}, numbers(trial.present));
  arrays.set_text(name + "identity", trial.identity);
  for (std::size_t k = 0; k < trial.clusters.size(); ++k) {
    const ClusterValues &values = trial.clusters[k];
    const std::size_t natoms = values.atom_energy.size();
    const std::string cluster = name + std::to_string(k) + ".";
    arrays.set(cluster + "energy", values.energy);
    arrays.set(cluster + "atom_energy", {natoms}, values.atom_energy);
    arrays.set(cluster + "force", {natoms, 3}, values.force);
    arrays.set(cluster + "virial", {9}, {values.virial.begin(), values.virial.end()});
  }
}

Record::Trial trial_of(const Arrays &arrays, const std::string &name)
{
  Record::Trial trial{flags(arrays, name + "present"), arrays.text(name + "identity"), {}};
  for (std::size_t k = 0;; ++k) {
    const std::string cluster = name + std::to_string(k) + ".";
    if (!arrays.has(cluster + "energy")) return trial;
    ClusterValues values;
    values.energy = arrays.number(cluster + "energy");
    values.atom_energy = arrays.get(cluster + "atom_energy", {-1}).values;
    const auto natoms = static_cast<std::ptrdiff_t>(values.atom_energy.size());
    values.force = arrays.get(cluster + "force", {natoms, 3}).values;
    std::ranges::copy(arrays.get(cluster + "virial", {9}).values, values.virial.begin());
    trial.clusters.push_back(std::move(values));
  }
}

/// The second line: of the other members and of what stands behind it.
std::string digest(const std::string &archive, std::string_view behind)
{
  return pwmlff::sha256(pwmlff::digest_without(archive, RECORD) + std::string(behind)) + "\n";
}

/// What a simulation, the test clusters or an engine would rely on.
void check(const Record &record)
{
  const ModelInfo &info = record.info;
  pwmlff::ModelLimits limits;
  limits.cutoff = info.cutoff;
  limits.interaction_range = info.interaction_range;
  limits.atom_type.assign(info.atom_type.begin(), info.atom_type.end());
  pwmlff::check_limits(limits);
  const std::size_t n = info.atom_type.size();
  const pwmlff::NetworkInfo network = record.network->info();
  bool fits = (info.closest.empty() || info.closest.size() == n * n) &&
              network.atom_type == info.atom_type && network.cutoff == info.cutoff &&
              (info.sel.empty() || info.sel == network.slots) &&
              (network.slots.empty() || info.max_neighbor >= 1);
  for (const Record::Trial &trial : record.trials) fits &= trial.present.size() == n;
  if (!fits) throw std::runtime_error("parts of the record are of different models");
}

}    // namespace

const Record::Trial *Record::trial(const std::vector<bool> &present) const
{
  const auto found = std::ranges::find(trials, present, &Trial::present);
  return found == trials.end() ? nullptr : &*found;
}

std::optional<Arrays> arrays_in(std::string_view archive)
{
  for (const pwmlff::Family *const family : pwmlff::families()) {
    const auto members = pwmlff::extra_files(archive, std::string(family->name) + "-arrays");
    if (!members.empty()) return Arrays::read(members.begin()->second);
  }
  return {};
}

std::string written(const Record &record, const Arrays *network, const std::string &archive)
{
  Arrays arrays("record");
  add(arrays, record.info);
  arrays.set("gate", {3}, {record.gate.energy, record.gate.atom_energy, record.gate.force});
  for (std::size_t k = 0; k < record.trials.size(); ++k) add(arrays, name_of(k), record.trials[k]);
  if (network) {
    arrays.set_text("family", network->family());
    arrays.add(NETWORK, *network);
  }
  const std::string contents = arrays.written();
  return std::string(MAGIC) + digest(archive, contents) + contents;
}

bool trained_here(std::string_view archive)
{
  const auto files = pwmlff::extra_files(archive, CARD);
  const auto card = files.find(CARD);
  // Within a text of JSON there would be a backslash before the quotation mark.
  return card != files.end() && card->second.find("\"configuration\": {") != std::string::npos;
}

std::vector<int> elements_without_data(std::string_view archive)
{
  const auto files = pwmlff::extra_files(archive, WITHOUT_DATA);
  const auto found = files.find(WITHOUT_DATA);
  std::istringstream text(found == files.end() ? "" : found->second);
  return {std::istream_iterator<int>(text), {}};
}

std::optional<Record> read_record(const std::string &archive)
try {
  pwmlff::check_model_archive(archive);
  const auto members = pwmlff::extra_files(archive, RECORD);
  const auto member = members.find(RECORD);
  if (member == members.end()) return {};
  std::string_view rest = member->second;
  if (!rest.starts_with(MAGIC) || rest.size() < MAGIC.size() + DIGEST_LINE) return {};
  rest.remove_prefix(MAGIC.size());
  const std::string_view line = rest.substr(0, DIGEST_LINE);
  rest.remove_prefix(DIGEST_LINE);
  if (line != digest(archive, rest)) return {};
  const Arrays arrays = Arrays::read(rest);
  Record record;
  record.info = info_of(arrays);
  const std::vector<double> &gate = arrays.get("gate", {3}).values;
  record.gate = {gate[0], gate[1], gate[2]};
  while (arrays.has(name_of(record.trials.size()) + "present"))
    record.trials.push_back(trial_of(arrays, name_of(record.trials.size())));
  std::optional<Arrays> network = arrays_in(archive);
  if (!network) network = arrays.part(NETWORK, arrays.text("family"));
  record.network = pwmlff::read_network(*network);
  check(record);
  record.info.without_data = elements_without_data(archive);
  return record;
} catch (const std::exception &) {
  return {};
}

}    // namespace pwmlff::models
