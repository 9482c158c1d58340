// SPDX-License-Identifier: GPL-2.0-or-later

#include "compiled_edge.h"

#include "archive/sha256.h"

#include <ATen/Version.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <unistd.h>

namespace pwmlff::models {
namespace {

// Members among the extra files are "compiled-RELEASE-CPU.pt2", and for each another one with its
// SHA-256, as python/pwmlff/models/compiled.py writes them.
constexpr const char *PREFIX = "compiled-", *SUFFIX = ".pt2", *HASH = ".sha256";
constexpr const char *ANEW = "make it anew here with 'pwmlff convert --compile'";

// Tensors with fewer rows than this have shapes that compilers treat by themselves.
constexpr std::int64_t FEWEST_ROWS = 2;

std::string release()
{
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

/// A file that is gone afterwards.
class Temporary {
 public:
  explicit Temporary(const std::string &contents)
  {
    path_ = (std::filesystem::temp_directory_path() / "pwmlff-XXXXXX.pt2").string();
    const int file = mkstemps(path_.data(), static_cast<int>(std::string(SUFFIX).size()));
    if (file < 0) throw std::runtime_error("cannot write " + path_);
    close(file);
    std::ofstream stream(path_, std::ios::binary);
    stream << contents;
    stream.close();
    if (!stream) throw std::runtime_error("cannot write " + path_ + "; is there space?");
  }
  Temporary(const Temporary &) = delete;
  Temporary &operator=(const Temporary &) = delete;
  ~Temporary() { std::remove(path_.c_str()); }

  const std::string &path() const { return path_; }

 private:
  std::string path_;
};

using Loader = torch::inductor::AOTIModelPackageLoader;

std::shared_ptr<Loader> open_package(const std::string &package)
{
  const Temporary file(package);
  try {
    return std::make_shared<Loader>(file.path());
  } catch (const std::exception &) {
    // Most compilers have it ask for this library, which is empty, but loads torch's CUDA as well.
    if (!open_torch_library("libtorch.so").empty()) throw;
    return std::make_shared<Loader>(file.path());
  }
}

// Packages are opened once for a process, and stay: g++ marks templates of their libraries as
// unique, which keeps the system from ever letting go of one, so each other time would leave
// another copy.
std::shared_ptr<Loader> opened_once(const std::string &package)
{
  static std::mutex mutex;
  static auto &opened = *new std::map<std::string, std::shared_ptr<Loader>>;    // outlives torch
  const std::lock_guard lock(mutex);
  std::shared_ptr<Loader> &loader = opened[pwmlff::sha256(package)];
  if (!loader) loader = open_package(package);
  return loader;
}

}    // namespace

std::string compiled_code(const ModelFile &file)
{
  const auto packages = file.extra_files(PREFIX);
  if (packages.empty()) return {};
  const std::string cpu = at::get_cpu_capability();
  std::vector<std::string> usable = {cpu};
  if (cpu == "AVX512") usable.emplace_back("AVX2");
  for (const std::string &one : usable) {
    const auto found = packages.find(PREFIX + release() + "-" + one + SUFFIX);
    if (found == packages.end()) continue;
    // What is altered would crash here, when it is opened or when it runs.
    const auto &[name, package] = *found;
    const auto hash = packages.find(name + HASH);
    if (hash == packages.end())
      throw std::runtime_error("its compiled code (" + name +
                               ") is of an older release, which gave it no SHA-256; " + ANEW);
    if (hash->second != pwmlff::sha256(package))
      throw std::runtime_error("its compiled code (" + name + ") has another SHA-256, " +
                               pwmlff::sha256(package) + ", than when it was made; " + ANEW);
    return package;
  }
  std::string names;
  for (const auto &[name, contents] : packages)
    if (name.ends_with(SUFFIX)) names += (names.empty() ? "" : ", ") + name;
  throw std::runtime_error("of its compiled code (" + names + ") nothing is for torch " +
                           release() + " on a CPU with " + cpu + "; " + ANEW);
}

CompiledEdge::CompiledEdge(const EdgeTorchScript &original, const std::string &package) :
    EdgeTorchScript(original), loader(opened_once(package))
{
}

EdgeTorchScript::Energies CompiledEdge::energies(const at::Tensor &edge_vec,
                                                 const at::Tensor &edge_index,
                                                 const at::Tensor &types, std::int64_t nlocal,
                                                 const Named &named)
{
  if (edge_vec.size(0) < FEWEST_ROWS || types.size(0) < FEWEST_ROWS)
    return EdgeTorchScript::energies(edge_vec, edge_index, types, nlocal, named);
  at::Tensor weight = at::zeros({types.size(0)}, at::kDouble);
  weight.narrow(0, 0, nlocal).fill_(1.0);
  const std::vector<at::Tensor> found = loader->run({edge_vec, edge_index, types, weight});
  return {found.at(0).narrow(0, 0, nlocal).to(at::kDouble).contiguous(), found.at(1)};
}

}    // namespace pwmlff::models
