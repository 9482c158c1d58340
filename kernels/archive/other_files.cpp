// SPDX-License-Identifier: GPL-2.0-or-later

#include "other_files.h"

#include "../core/printable.h"
#include "pickle.h"
#include "zip.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <vector>

namespace pwmlff {

const char *const EXPECTED_ARCHIVE =
    "expected a TorchScript archive as torch.jit.script(model).save(file) writes it";

namespace {

using Tag = PickleValue::Tag;
using namespace std::string_view_literals;

/// What is done with a model that no pair style runs.
constexpr std::string_view DISTILL =
    "; run it with its own calculator of ase, from which 'pwmlff distill' learns too";

constexpr std::string_view DEEPMD_CONVERTS =
    "; run it with pair_style deepmd, or bring a model with descriptor se_e2_a into PyTorch ('dp "
    "convert-backend FILE model.pth') for 'pwmlff convert'";

/// Bytes of a text that is looked into.
constexpr std::size_t MOST_TEXT = 1 << 22;

std::string_view trimmed(std::string_view text)
{
  constexpr std::string_view blanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// The next line without the blanks around it; the rest loses it.
std::string_view line(std::string_view &rest)
{
  const std::size_t end = rest.find('\n');
  const std::string_view result = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return trimmed(result);
}

/* ---- texts ---- */

bool is_text(std::string_view bytes)
{
  const std::string_view head = bytes.substr(0, 512);
  return std::none_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' && byte != '\n' && byte != '\r' && byte != '\t';
  });
}

// "forcefield.ff" of PWMLFF: the number of the kind of model, an empty line, numbers
// (src/aux/extract_ff.py).
bool is_forcefield(std::string_view bytes)
{
  const std::string_view kind = line(bytes), gap = line(bytes), numbers = line(bytes);
  return kind.size() == 1 && kind[0] >= '1' && kind[0] <= '9' && gap.empty() && !numbers.empty() &&
         numbers.find_first_not_of("0123456789 .-+eE\t") == std::string_view::npos;
}

using Lines = std::vector<std::string_view>;

/// The first lines that are neither blank nor a comment.
Lines head_of(std::string_view bytes)
{
  constexpr std::size_t MOST = 64;
  Lines result;
  while (!bytes.empty() && result.size() < MOST)
    if (const std::string_view next = line(bytes); !next.empty() && next[0] != '#')
      result.push_back(next);
  return result;
}

std::vector<std::string_view> words(std::string_view text)
{
  std::vector<std::string_view> result;
  while (!(text = trimmed(text)).empty()) {
    result.push_back(text.substr(0, text.find_first_of(" \t")));
    text.remove_prefix(result.back().size());
  }
  return result;
}

bool has_line(const Lines &head, std::string_view prefix)
{
  return std::any_of(head.begin(), head.end(), [&](auto text) { return text.starts_with(prefix); });
}

bool is_number(std::string_view word, std::string_view characters)
{
  return word.find_first_not_of(characters) == std::string_view::npos;
}

// "1 31" and "Ta 0.5 1": elements and coefficients, then symbol, radius and weight.
bool is_snap_coefficients(const Lines &head)
{
  constexpr std::string_view digits = "0123456789", real = "0123456789.-+eE";
  if (head.size() < 3) return false;
  const auto counts = words(head[0]), element = words(head[1]);
  return counts.size() == 2 && is_number(counts[0], digits) && is_number(counts[1], digits) &&
         element.size() == 3 && !is_number(element[0], real) && is_number(element[1], real) &&
         is_number(element[2], real) && !words(head[2]).empty();
}

/// What a file is, and what is done with it.
struct Words {
  std::string_view kind, remedy;

  std::string text() const { return std::string(kind).append(remedy); }
};

struct TextKind {
  bool (*is)(const Lines &head);
  Words words;
};

/// In the order in which they are asked.
constexpr TextKind TEXTS[] = {
    {[](const Lines &head) { return head[0] == "MTP"; },
     "is a moment tensor potential of MLIP (.mtp, .almtp); run it with pair_style mlip, which MLIP "
     "brings for LAMMPS"},
    {[](const Lines &head) { return has_line(head, "rcutfac ") && has_line(head, "nelems "); },
     "is a descriptor for pair_style mliap of LAMMPS; run it with that"},
    {[](const Lines &head) { return has_line(head, "rcutfac ") && has_line(head, "twojmax "); },
     "holds parameters of a SNAP potential (.snapparam); run it with pair_style snap of LAMMPS"},
    {is_snap_coefficients,
     "holds coefficients of a SNAP potential (.snapcoeff); run it with pair_style snap of LAMMPS"},
    {[](const Lines &head) { return has_line(head, "'@class': Model"); },
     {"is a model of DeePMD-kit as text (.yaml)", DEEPMD_CONVERTS}},
    {[](const Lines &head) {
       return has_line(head, "pair_coeff ") || has_line(head, "pair_coeff\t");
     },
     "is an input of LAMMPS that names a potential; take it there with 'include'"},
};

/* ---- what torch.save wrote ---- */

/// Words of a pickle that files of one program have, and what they are.
struct SavedKind {
  std::string_view keys[3];
  Words words;
};

constexpr SavedKind SAVED[] = {
    {{"json_file"},
     "a checkpoint of MatPL or PWMLFF (KEYS); make a model file of a DP with 'pwmlff convert FILE "
     "-o a.pt'"},
    {{"_extra_state", "model_params"},
     "a checkpoint of a training with DeePMD-kit (KEYS); freeze it ('dp --pt freeze -c FILE -o "
     "model.pth') and give model.pth to 'pwmlff convert'"},
    {{"model_yaml", "state_dict", "implemented_species"},
     {"a model of AIMNet2 (KEYS), whose energy has charges and dispersion beyond its "
      "cutoff",
      DISTILL}},
    {{"aev_computer."}, {"weights of ANI, of TorchANI (KEYS)", DISTILL}},
};

/// Beginnings of classes, and what their objects and modules are.
struct ClassKind {
  std::string_view begin;
  Words words;
};

constexpr ClassKind CLASSES[] = {
    {"metatomic.", "a model of metatomic; run it with pair_style metatomic"},
    {"metatensor.", "a model of metatomic (metatensor); run it with pair_style metatomic"},
    {"aimnet",
     {"a model of AIMNet2, whose energy has charges and dispersion beyond its cutoff", DISTILL}},
    {"torchani.", {"a model of ANI, of TorchANI", DISTILL}},
};

const ClassKind *kind_of(std::string_view class_name)
{
  for (const ClassKind &kind : CLASSES)
    if (class_name.starts_with(kind.begin)) return &kind;
  return nullptr;
}

}    // namespace

std::string class_of(const PickleValue &value)
{
  if (value.tag != Tag::object || value.items.empty() || value.items[0]->tag != Tag::global)
    return {};
  std::string name = printable(value.items[0]->text, 120);
  const std::size_t gap = value.items[0]->text.find('\n');
  if (gap < name.size()) name[gap] = '.';
  return name;
}

std::string name_of_other(std::string_view bytes)
{
  const auto is = [&](std::string_view signature) { return bytes.starts_with(signature); };
  if (bytes.empty()) return "is empty; copy it again";
  if (bytes.size() > 3 && is("nep") && bytes[3] >= '0' && bytes[3] <= '9')
    return "is a NEP potential (nep.txt of GPUMD or MatPL), and no TorchScript";
  if (is("version https://git-lfs"))
    return "is a pointer of Git LFS, not the file itself; fetch that with 'git lfs pull'";
  if (is("<!DOCTYPE") || is("<!doctype") || is("<html"))
    return "is a web page, perhaps instead of a download that failed; download it again";
  if (is("\x1f\x8b") ||
      is("\xfd"
         "7zXZ") ||
      is("BZh") || is("7z\xbc\xaf") || (bytes.size() > 262 && bytes.substr(257, 5) == "ustar"))
    return "is a packed file (gzip, xz, bzip2, 7z or tar); unpack it and name what is inside";
  if (is("\x89HDF")) {
    if (bytes.find("\"software\":\"deepmd-kit\"") != std::string_view::npos)
      return "is a model of DeePMD-kit in HDF5 (.dp, .hlo)" + std::string(DEEPMD_CONVERTS);
    return std::string("is an HDF5 file; ") + EXPECTED_ARCHIVE;
  }
  if (is("\n") && bytes.find("descrpt_attr/") != std::string_view::npos)
    return "is a frozen TensorFlow model of DeePMD-kit (.pb)" + std::string(DEEPMD_CONVERTS);
  if (is("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv))
    return "is not a TorchScript module but what torch.save wrote before torch 1.6 (weights or a "
           "checkpoint of a training); export it with the program that trained it, for MatPL and "
           "PWMLFF with 'MatPL script FILE'";
  if (is("\x80") && bytes.size() > 1 && bytes[1] >= 2 && bytes[1] <= 5)
    return std::string("is a pickle of Python; ") + EXPECTED_ARCHIVE;
  if (is_forcefield(bytes))
    return "is a force field of PWMLFF in text form (forcefield.ff of its linear, NN or Fortran DP "
           "models); run it with PWmat or the LAMMPS of PWMLFF, or export a DP model with 'PWMLFF "
           "script FILE'";
  const bool text = is_text(bytes);
  if (text)
    if (const Lines head = head_of(bytes); !head.empty())
      for (const TextKind &kind : TEXTS)
        if (kind.is(head)) return kind.words.text();
  std::string_view rest = bytes;
  const std::string found = text ? "a text that begins with '" + printable(line(rest)) + "'"
                                 : "bytes that begin with '" + printable(bytes, 8) + "'";
  return "is not a TorchScript archive: found " + found + ", " + EXPECTED_ARCHIVE;
}

std::string name_of_package(const Zip &zip, const std::string &root)
{
  const auto has = [&](std::string_view name) { return zip.find(root + std::string(name)); };
  if (has("model.json") && !has("archive_format"))
    return "is a TorchScript file of a torch before 1.2; save it again with a newer one";
  if (has(".data/extern_modules"))
    return "is a package of Python code (torch.package), as NequIP writes them; make a model file "
           "of it with 'pwmlff convert FILE -o a.pt', with nequip-compile on the PATH";
  bool exported = has("archive_format") || zip.find("serialized_exported_program.json");
  std::string remedy = "; give the model from which it was made";
  for (const ZipMember &member : zip.members()) {
    exported |= member.name.find("/aotinductor/") != std::string_view::npos;
    const bool of_program =
        member.name.ends_with("metadata.json") || member.name.ends_with("/model.json");
    if (!of_program || member.size > MOST_TEXT) continue;
    const std::string text = contents(member);
    if (text.find("\"type_names\"") != std::string::npos)
      remedy = " of NequIP or Allegro; give its .nequip.zip or .ckpt to 'pwmlff convert'";
    else if (text.find("\"type_map\"") != std::string::npos)
      remedy = " of DeePMD-kit; run it with pair_style deepmd, or freeze a model with descriptor "
               "se_e2_a as .pth ('dp --pt freeze') for 'pwmlff convert'";
  }
  if (exported) return "is a package of torch.export or AOTInductor (.pt2)" + remedy;
  return "is a zip file, but not a TorchScript archive: found '" + printable(zip.first()) +
         "' and no data.pkl, " + EXPECTED_ARCHIVE;
}

std::string name_of_saved(const std::function<std::string()> &table)
{
  const std::string head = "is not a TorchScript module but what torch.save wrote: ";
  try {
    const std::string pickle = table();
    const Pickle read(pickle, Pickle::Writer::python);
    const PickleValue &root = read.root();
    const std::string made_by = class_of(root);
    const bool ordered = made_by == "collections.OrderedDict";
    if (const ClassKind *const kind = kind_of(made_by)) return head + kind->words.text();
    if (made_by.starts_with("mace."))
      return head + "a model of MACE (class " + made_by +
             "); make a model file of it with 'pwmlff convert FILE -o a.pt', with "
             "mace_create_lammps_model on the PATH";
    if (root.tag != Tag::dict && !ordered)
      return head +
             (made_by.empty() ? std::string("a plain value")
                              : "a Python object of class " + made_by) +
             ", which needs the program that it comes from; export it there with "
             "torch.jit.script(model).save(file), with the attributes of the model contract";
    std::string keys;
    int nkeys = 0;
    for (std::size_t k = ordered ? 2 : 0; k + 1 < root.items.size(); k += 2) {
      if (root.items[k]->tag != Tag::text) continue;
      if (++nkeys <= 6) keys += (nkeys > 1 ? ", " : "") + printable(root.items[k]->text, 40);
      if (nkeys == 7) keys += ", ...";
    }
    for (const SavedKind &kind : SAVED) {
      const auto there = [&](std::string_view word) {
        return pickle.find(word) != std::string::npos;
      };
      if (!std::ranges::all_of(kind.keys, there)) continue;
      std::string text = kind.words.text();
      return head + text.replace(text.find("KEYS"), 4, keys);
    }
    return head + "a dictionary (" + keys +
           "), like weights or a checkpoint of a training; export the model with the program that "
           "trained it";
  } catch (const std::exception &) {
    return head + "no code is in it; " + EXPECTED_ARCHIVE;
  }
}

std::string name_of_module(std::string_view class_name)
{
  const ClassKind *const kind = kind_of(class_name);
  return kind ? "is " + kind->words.text() : "";
}

std::string name_of_folder(const std::string &path)
{
  std::error_code failed;    // then it is not there
  if (std::filesystem::exists(std::filesystem::path(path) / "saved_model.pb", failed))
    return "is a folder with a saved model of TensorFlow, as GRACE and DeePMD-kit write them; run "
           "it with pair_style grace or deepmd";
  return "is a folder; name the file in it";
}

}    // namespace pwmlff
