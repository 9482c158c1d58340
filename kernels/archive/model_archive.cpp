// SPDX-License-Identifier: GPL-2.0-or-later

#include "model_archive.h"

#include "../core/printable.h"
#include "other_files.h"
#include "pickle.h"
#include "sha256.h"
#include "unusable.h"
#include "zip.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

namespace pwmlff {
namespace {

using Tag = PickleValue::Tag;
using namespace std::string_view_literals;

/// A larger pickle would be unfolded to gigabytes.
constexpr std::size_t MOST_PICKLE_BYTES = 1 << 25;

/// So many elements may tensors have, together, beyond those of their storages: expanded ones have.
constexpr std::int64_t MOST_EXPANDED = 1 << 24;

/* ---- tensors and storages ---- */

/// Bytes of an element of a storage class like "DoubleStorage" or "Float8_e5m2Storage"; 0 for an
/// unknown one.
std::int64_t element_bytes(std::string_view name)
{
  constexpr std::string_view ending = "Storage";
  if (!name.ends_with(ending)) return 0;
  name.remove_suffix(ending.size());
  struct Storage {
    std::string_view name;
    std::int64_t bytes;
  };
  static constexpr Storage storages[] = {
      {"Double", 8},         {"Float", 4},       {"Half", 2},   {"Long", 8}, {"Int", 4},
      {"Short", 2},          {"Char", 1},        {"Byte", 1},   {"Bool", 1}, {"ComplexFloat", 8},
      {"ComplexDouble", 16}, {"ComplexHalf", 4}, {"Untyped", 1}};
  for (const Storage &storage : storages)
    if (storage.name == name) return storage.bytes;
  // The others say their bits: BFloat16, Float8_e5m2, UInt64, QInt32. What is less than a byte
  // takes one, as Float4_e2m1fn_x2 and Bits2x4 do, which are two and four to a byte.
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digit = std::find_if(name.begin(), name.end(), is_digit);
  const auto letters = static_cast<std::size_t>(digit - name.begin());
  constexpr std::string_view numbered[] = {"Float", "BFloat", "BComplex", "Int",
                                           "UInt",  "QInt",   "QUInt",    "Bits"};
  if (std::find(std::begin(numbered), std::end(numbered), name.substr(0, letters)) ==
      std::end(numbered))
    return 0;
  std::int64_t bits = 0;
  for (auto character = digit; character != name.end() && is_digit(*character) && bits <= 64;
       ++character)
    bits = 10 * bits + (*character - '0');
  return bits <= 64 ? (bits + 7) / 8 : 0;
}

/// Storages and tensors of one pickle of an archive.
class TensorCheck {
 public:
  TensorCheck(const Zip &zip, std::string folder) : zip(zip), folder(std::move(folder)) {}

  void check(const Pickle &pickle)
  {
    for (const PickleValue &value : pickle.values()) {
      if (value.tag == Tag::persistent) check_storage(value);
      if (value.tag == Tag::object && value.items.size() >= 2 && value.items[1]->tag == Tag::list &&
          !value.items[1]->items.empty() && value.items[1]->items[0]->tag == Tag::persistent)
        check_tensor(value.items[1]->items);
    }
  }

 private:
  struct Storage {
    std::string member;
    std::int64_t numel, element;
  };

  // ("storage", class, key, place, number of elements)
  Storage storage_of(const PickleValue &value) const
  {
    const auto &id = value.items.front()->items;
    if (value.items.front()->tag != Tag::list || id.size() < 5 || id[0]->text != "storage" ||
        id[1]->tag != Tag::global || id[2]->tag != Tag::text || id[4]->tag != Tag::integer ||
        id[4]->integer < 0)
      fail("a storage is not described as torch does");
    const std::string_view type = id[1]->text.substr(id[1]->text.find('\n') + 1);
    const std::int64_t element = element_bytes(type);
    if (element == 0) fail("a tensor is stored as '" + printable(type) + "', which is not known");
    return {folder + std::string(id[2]->text), id[4]->integer, element};
  }

  void check_storage(const PickleValue &value) const
  {
    const Storage storage = storage_of(value);
    if (storage.numel == 0) return;
    const PickleValue &device = *value.items.front()->items[3];
    if (device.tag == Tag::text && device.text.starts_with("meta"))
      throw Unusable(
          "its tensor '" + printable(storage.member) +
          "' has no contents (device meta); give the model its weights before it is saved");
    const ZipMember *const member = zip.find(storage.member);
    if (!member) fail("its member '" + printable(storage.member) + "', a tensor, is missing");
    if (member->size / storage.element != static_cast<std::uint64_t>(storage.numel))
      fail("its member '" + printable(storage.member) + "' has " + std::to_string(member->size) +
           " bytes, expected " + std::to_string(storage.numel) + " elements of " +
           std::to_string(storage.element));
  }

  // (storage, offset, sizes, strides, ...)
  void check_tensor(const std::vector<const PickleValue *> &arguments)
  {
    const Storage storage = storage_of(*arguments[0]);
    const auto broken = [&] {
      fail("a tensor goes beyond its storage '" + printable(storage.member) + "'");
    };
    if (arguments.size() < 4 || arguments[1]->tag != Tag::integer ||
        arguments[2]->tag != Tag::list || arguments[3]->tag != Tag::list ||
        arguments[2]->items.size() != arguments[3]->items.size())
      broken();
    __extension__ using Wide = __int128;
    Wide last = arguments[1]->integer, elements = 1;
    if (last < 0) broken();
    for (std::size_t k = 0; k < arguments[2]->items.size(); ++k) {
      const PickleValue &size = *arguments[2]->items[k], &stride = *arguments[3]->items[k];
      if (size.tag != Tag::integer || stride.tag != Tag::integer || size.integer < 0 ||
          stride.integer < 0)
        broken();
      elements *= size.integer;
      if (size.integer > 0) last += Wide{size.integer - 1} * stride.integer;
      constexpr Wide huge = Wide{1} << 62;
      if (elements > huge || last > huge) broken();
    }
    if (elements > 0 && last >= storage.numel) broken();
    if (elements > storage.numel) expanded += static_cast<std::int64_t>(elements) - storage.numel;
    if (elements > (Wide{1} << 40) || expanded > MOST_EXPANDED)
      throw Unusable("tensors have more elements than are stored, by more than " +
                     std::to_string(MOST_EXPANDED) +
                     "; expand them in the code of the model instead");
  }

  const Zip &zip;
  std::string folder;
  std::int64_t expanded = 0;
};

/// The folder that all members of an archive are in, with its "/".
std::string root_folder(const Zip &zip)
{
  return std::string(zip.first().substr(0, zip.first().find('/'))) + "/";
}

/// "module.Name" of what TorchScript calls "__torch__.module.___torch_mangle_7.Name".
std::string python_class(const std::string &name)
{
  std::string result;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part != "__torch__" && !part.starts_with("___torch_mangle_"))
      result += (result.empty() ? "" : ".") + part;
    begin = end + 1;
  }
  return result;
}

}    // namespace

void check_model_archive(std::string_view bytes)
{
  if (!bytes.starts_with("PK\x03\x04")) fail(name_of_other(bytes));
  try {
    const Zip zip(bytes);
    if (zip.members().empty()) fail("it is empty");
    const std::string root = root_folder(zip);
    const auto has = [&](const std::string &name) { return zip.find(root + name) != nullptr; };
    const auto pickle_of = [&](const std::string &name) {
      const ZipMember &member = *zip.find(root + name);
      if (member.size > MOST_PICKLE_BYTES)
        throw Unusable("its member '" + name + "' has " + std::to_string(member.size) +
                       " bytes, expected at most " + std::to_string(MOST_PICKLE_BYTES) +
                       "; keep large arrays in tensors");
      return contents(member);
    };

    if (!has("data.pkl")) throw std::invalid_argument(name_of_package(zip, root));
    if (!has("constants.pkl"))
      throw std::invalid_argument(name_of_saved([&] { return pickle_of("data.pkl"); }));
    for (const std::string name : {"data", "constants"}) {
      const std::string pickle = pickle_of(name + ".pkl");
      const Pickle read(pickle, Pickle::Writer::torch);
      read.check_depth();
      TensorCheck(zip, root + name + "/").check(read);
      const std::string other = name_of_module(python_class(class_of(read.root())));
      if (!other.empty()) throw std::invalid_argument(other);
    }
  } catch (const std::invalid_argument &) {
    throw;    // sound, but something else
  } catch (const Unusable &error) {
    fail(std::string("cannot be used, though no damage was found: ") + error.what());
  } catch (const std::exception &error) {
    fail(std::string("is damaged: ") + error.what() + "; copy or export it again");
  }
}

std::string model_class(std::string_view bytes)
{
  const Zip zip(bytes);
  const ZipMember *const member = zip.find(root_folder(zip) + "data.pkl");
  if (!member) fail("is a zip file without data.pkl, so it holds no module");
  const std::string pickle = contents(*member);
  return python_class(class_of(Pickle(pickle, Pickle::Writer::torch).root()));
}

std::map<std::string, std::string> extra_files(std::string_view bytes, std::string_view prefix)
{
  const Zip zip(bytes);
  const std::string folder = root_folder(zip) + "extra/";
  std::map<std::string, std::string> result;
  for (const ZipMember &member : zip.members())
    if (member.name.starts_with(folder + std::string(prefix)))
      result.emplace(member.name.substr(folder.size()), contents(member));
  return result;
}

std::string digest_without(std::string_view bytes, std::string_view extra_file)
{
  const Zip zip(bytes);
  const std::string root = root_folder(zip), left_out = root + "extra/" + std::string(extra_file);
  std::map<std::string_view, std::string> digests;
  for (const ZipMember &member : zip.members())
    if (member.name != left_out)
      digests.emplace(member.name.substr(member.name.starts_with(root) ? root.size() : 0),
                      sha256(contents(member)));
  std::string all;
  for (const auto &[name, digest] : digests) all += digest + " " + std::string(name) + "\n";
  return sha256(all);
}

void check_limits(const ModelLimits &limits)
{
  constexpr double shortest = 0.01, longest = 100.0, most_hops = 100.0, most_neighbors = 10000.0;
  constexpr std::int64_t last_element = 118;
  const auto text = [](double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.15g", value);
    return std::string(buffer);
  };
  // Negated comparisons refuse NaN.
  if (!(limits.cutoff >= shortest && limits.cutoff <= longest))
    fail("has cutoff " + text(limits.cutoff) + ", expected a length from " + text(shortest) +
         " to " + text(longest));
  if (!(limits.interaction_range >= limits.cutoff && limits.interaction_range <= longest &&
        limits.interaction_range <= most_hops * limits.cutoff))
    fail("has interaction_range " + text(limits.interaction_range) +
         ", expected a length from the cutoff, " + text(limits.cutoff) + ", to " +
         text(std::min(longest, most_hops * limits.cutoff)));
  const double most = limits.max_neighbor.value_or(1.0);
  if (!(most >= 1.0 && most <= most_neighbors && most == std::floor(most)))
    fail("has maxNeighborNum " + text(most) + ", expected an integer from 1 to " +
         text(most_neighbors));
  bool good = !limits.atom_type.empty();
  std::string found;
  std::set<std::int64_t> seen;
  for (const std::int64_t number : limits.atom_type) {
    good &= number >= 1 && number <= last_element && seen.insert(number).second;
    if (found.size() < 100) found += (found.empty() ? "" : ", ") + std::to_string(number);
  }
  if (!good)
    fail("has atom_type [" + found + "], expected distinct atomic numbers from 1 to " +
         std::to_string(last_element));
  const auto ntypes = static_cast<double>(limits.atom_type.size());
  if (limits.ntypes && *limits.ntypes != ntypes)
    fail("has ntypes " + text(*limits.ntypes) + ", expected " + text(ntypes) +
         ", the number of entries of atom_type");
}

}    // namespace pwmlff

namespace {

template <typename Work> int answer(Work work, char *message, int size)
try {
  work();
  return 0;
} catch (const std::exception &error) {
  std::snprintf(message, static_cast<std::size_t>(size), "%s", error.what());
  return dynamic_cast<const std::invalid_argument *>(&error) ? 1 : -1;
}

}    // namespace

int pwmlff_check_model_archive(const char *bytes, uint64_t size, char *message, int message_size)
{
  return answer([&] { pwmlff::check_model_archive({bytes, size}); }, message, message_size);
}

int pwmlff_model_class(const char *bytes, uint64_t size, char *text, int text_size)
{
  return answer(
      [&] {
        std::snprintf(text, static_cast<std::size_t>(text_size), "%s",
                      pwmlff::model_class({bytes, size}).c_str());
      },
      text, text_size);
}

void pwmlff_name_of_folder(const char *path, char *text, int text_size)
{
  std::snprintf(text, static_cast<std::size_t>(text_size), "%s",
                pwmlff::name_of_folder(path).c_str());
}

int pwmlff_check_limits(double cutoff, double interaction_range, const double *max_neighbor,
                        const double *ntypes, const int64_t *atom_type, int entries, char *message,
                        int message_size)
{
  const auto given = [](const double *value) {
    return value ? std::optional(*value) : std::nullopt;
  };
  return answer(
      [&] {
        pwmlff::check_limits({cutoff,
                              interaction_range,
                              given(max_neighbor),
                              given(ntypes),
                              {atom_type, atom_type + entries}});
      },
      message, message_size);
}
