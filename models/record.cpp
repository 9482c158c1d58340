// SPDX-License-Identifier: GPL-2.0-or-later

#include "record.h"

#include "archive/model_archive.h"
#include "archive/sha256.h"
#include "mace/read_mace.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace pwmlff::models {
namespace {

constexpr const char *RECORD = "engine-record";
constexpr const char *CARD = "pwmlff.json";    // as pwmlff.evaluation.archive names it
constexpr const char *WITHOUT_DATA = "elements_without_data";    // as pwmlff.models.saving does
constexpr std::string_view MAGIC = "pwmlff-record 1\n";
constexpr std::size_t DIGEST_LINE = 65;

static_assert(std::endian::native == std::endian::little);

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// Appends what it is given.
struct Writer {
  std::string bytes;

  template <Number T> void operator()(T &value)
  {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
  void operator()(bool &value) { bytes.push_back(value ? 1 : 0); }
  void operator()(std::vector<bool> &values)
  {
    size(values);
    for (const bool value : values) bytes.push_back(value ? 1 : 0);
  }
  template <class T> void size(T &values)
  {
    auto n = static_cast<std::uint64_t>(values.size());
    (*this)(n);
  }
};

/// Takes it again in the same order.
struct Reader {
  std::string_view bytes;

  std::string_view take(std::size_t n)
  {
    if (n > bytes.size()) throw std::runtime_error("the record is cut off");
    const std::string_view taken = bytes.substr(0, n);
    bytes.remove_prefix(n);
    return taken;
  }
  template <Number T> void operator()(T &value)
  {
    const std::string_view taken = take(sizeof value);
    std::memcpy(&value, taken.data(), taken.size());
  }
  void operator()(bool &value) { value = take(1)[0] != 0; }
  void operator()(std::vector<bool> &values)
  {
    size(values);
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = take(1)[0] != 0;
  }
  template <class T> void size(T &values)
  {
    std::uint64_t n = 0;
    (*this)(n);
    if (n > bytes.size())
      throw std::runtime_error("the record is cut off");    // a byte each at least
    values.resize(n);
  }
};

template <class Stream> void transfer(Stream &stream, std::string &text)
{
  stream.size(text);
  for (char &letter : text) stream(letter);
}

template <class Stream, Number T> void transfer(Stream &stream, T &value) { stream(value); }

template <class Stream, class T> void transfer(Stream &stream, std::vector<T> &values)
{
  stream.size(values);
  for (T &value : values) transfer(stream, value);
}

template <class Stream> void transfer(Stream &stream, DPLayer &layer)
{
  stream(layer.in);
  stream(layer.out);
  transfer(stream, layer.weight);
  transfer(stream, layer.bias);
  transfer(stream, layer.step);
  stream(layer.residual);
}

template <class Stream> void transfer(Stream &stream, DPNet &net) { transfer(stream, net.layers); }

template <class Stream> void transfer(Stream &stream, DPGrade &grade)
{
  transfer(stream, grade.mean);
  transfer(stream, grade.factor);
}

template <class Stream> void transfer(Stream &stream, ZblPair &zbl)
{
  stream(zbl.inner);
  stream(zbl.outer);
  stream(zbl.reach);
  for (double &value : zbl.amplitude) stream(value);
  for (double &value : zbl.decay) stream(value);
}

template <class Stream> void transfer(Stream &stream, DPNetwork &network)
{
  stream(network.rmin);
  stream(network.rmax);
  transfer(stream, network.sel);
  stream(network.all_species);
  stream(network.width);
  stream(network.m2);
  transfer(stream, network.atom_type);
  transfer(stream, network.davg);
  transfer(stream, network.dstd);
  transfer(stream, network.embedding);
  transfer(stream, network.fitting);
  transfer(stream, network.zbl);
  transfer(stream, network.grades);
  stream(network.ambiguous);
}

template <class Stream> void transfer(Stream &stream, ModelInfo &info)
{
  transfer(stream, info.kind);
  transfer(stream, info.units);
  stream(info.cutoff);
  stream(info.interaction_range);
  transfer(stream, info.atom_type);
  stream(info.takes_edges);
  stream(info.max_neighbor);
  transfer(stream, info.sel);
  transfer(stream, info.closest);
  stream(info.takes_temperature);
  stream(info.nparameters);
  transfer(stream, info.dtype);
  transfer(stream, info.warnings);
}

template <class Stream> void transfer(Stream &stream, ClusterValues &values)
{
  stream(values.energy);
  transfer(stream, values.atom_energy);
  transfer(stream, values.force);
  for (double &component : values.virial) stream(component);
}

template <class Stream> void transfer(Stream &stream, Record::Trial &trial)
{
  stream(trial.present);
  transfer(stream, trial.identity);
  transfer(stream, trial.clusters);
}

template <class Stream> void transfer(Stream &stream, Record &record)
{
  transfer(stream, record.info);
  stream(record.gate.energy);
  stream(record.gate.atom_energy);
  stream(record.gate.force);
  if (record.info.kind == "DP") {
    if (!record.dp) record.dp.emplace();
    transfer(stream, *record.dp);
  }
  transfer(stream, record.trials);
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
  bool fits = info.closest.empty() || info.closest.size() == n * n;
  if (record.dp) {
    pwmlff::check_network(*record.dp);
    fits &= record.dp->atom_type == info.atom_type && record.dp->rmax == info.cutoff &&
            (info.sel.empty() || info.sel == record.dp->sel) && info.max_neighbor >= 1;
  } else {
    fits &= record.mace && record.mace->atom_type == info.atom_type &&
            record.mace->cutoff == info.cutoff;
  }
  for (const Record::Trial &trial : record.trials) fits &= trial.present.size() == n;
  if (!fits) throw std::runtime_error("parts of the record are of different models");
}

}    // namespace

const Record::Trial *Record::trial(const std::vector<bool> &present) const
{
  const auto found = std::ranges::find(trials, present, &Trial::present);
  return found == trials.end() ? nullptr : &*found;
}

std::string written(const Record &record, const std::string &archive)
{
  Writer writer;
  Record copy = record;
  transfer(writer, copy);
  return std::string(MAGIC) + digest(archive, writer.bytes) + writer.bytes;
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
  const auto found = pwmlff::extra_files(archive, RECORD);
  const auto text = found.find(RECORD);
  if (text == found.end()) return {};
  Reader reader{text->second};
  if (reader.take(MAGIC.size()) != MAGIC) return {};
  const std::string_view line = reader.take(DIGEST_LINE);
  if (line != digest(archive, reader.bytes)) return {};
  Record record;
  transfer(reader, record);
  if (!record.dp) {
    const auto arrays = pwmlff::extra_files(archive, MACE_ARRAYS);
    if (arrays.empty()) return {};
    record.mace = pwmlff::read_mace(arrays.begin()->second);
  }
  check(record);
  record.info.without_data = elements_without_data(archive);
  if (record.dp && record.info.sel.empty() && trained_here(archive)) {
    // Of an older release: what it expects of some elements is by another divisor.
    record.info.sel = record.dp->sel;
    record.dp->all_species = true;
    std::erase_if(record.trials, [](const Record::Trial &trial) {
      return std::ranges::find(trial.present, false) != trial.present.end();
    });
  }
  return record;
} catch (const std::exception &) {
  return {};
}

}    // namespace pwmlff::models
