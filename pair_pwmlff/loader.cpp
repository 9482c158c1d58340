// SPDX-License-Identifier: GPL-2.0-or-later

#include "loader.h"

#include "collective.h"

#include "error.h"
#include "lammps.h"

#include <dlfcn.h>
#include <link.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace pair_pwmlff {
namespace {

using CreatePair = void *(void *, const char *, OpenTorch *);
using Release = const char *();

constexpr const char *TORCH_LIBRARY = "libtorch_cpu.so";
constexpr const char *OPENMP_LIBRARY = "libgomp.so.1";
constexpr const char *STYLE_LIBRARY = "libpair_pwmlff.so";
// What these are linked to, each after those that it needs itself.
constexpr const char *STYLE_DEPENDENCIES[] = {
    "libpwmlff_placement-" PWMLFF_VERSION ".so", "libpwmlff_kernels-" PWMLFF_VERSION ".so",
    "libpwmlff_archive-" PWMLFF_VERSION ".so", "libpwmlff_models-" PWMLFF_VERSION ".so"};
constexpr const char *TORCH_DEPENDENCIES[] = {"libpwmlff_torch-" PWMLFF_VERSION ".so"};
// Of these, of any release, a process has one copy each.
constexpr const char *UNIQUE[] = {"libpwmlff_models", "libpwmlff_torch"};
constexpr const char *RELEASE_SYMBOL = "pwmlff_release";
constexpr const char *STYLE_SYMBOL = "pwmlff_create_pair";
constexpr const char *TIMEOUT_VARIABLE = "PWMLFF_LOAD_TIMEOUT";
constexpr double LOAD_TIMEOUT = 60.0;                             // seconds
constexpr const char *TORCH_LIB_VARIABLE = "PWMLFF_TORCH_LIB";    // set by pwmlff.plugin.folder()

fs::path plugin_folder()
{
  return library_path(reinterpret_cast<const void *>(&pwmlff_load_pair)).parent_path();
}

// The folder of a torch that this process has loaded already (a Python with "import torch").
fs::path loaded_torch_folder()
{
  void *handle = dlopen(TORCH_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  link_map *map = nullptr;
  if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void *>(&map)) != 0) return {};
  return fs::path(map->l_name).parent_path();
}

// The folder of the torch to use, in the order in which the answers can be trusted.
fs::path torch_folder()
{
  fs::path loaded = loaded_torch_folder();
  if (!loaded.empty()) return loaded;

  std::vector<fs::path> candidates;
  if (const char *value = std::getenv(TORCH_LIB_VARIABLE)) candidates.emplace_back(value);
  candidates.push_back(plugin_folder() / "../../torch/lib");    // site-packages/{pwmlff,torch}/lib
#ifdef PWMLFF_TORCH_FOLDER
  candidates.push_back(fs::path(PWMLFF_TORCH_FOLDER) / "lib");
#endif

  std::string looked;
  for (const auto &folder : candidates) {
    std::error_code ignored;
    if (fs::exists(folder / TORCH_LIBRARY, ignored)) return fs::canonical(folder);
    looked += (looked.empty() ? "" : ", ") + folder.lexically_normal().string();
  }
  throw std::runtime_error(std::string("found no torch (looked for ") + TORCH_LIBRARY + " in " +
                           looked +
                           "); model files of TorchScript need torch " PWMLFF_TORCH_VERSION
                           ": install it with pip, or set " +
                           TORCH_LIB_VARIABLE + " to the folder of its libraries");
}

// Release of the torch in a folder, like 2.13.0: from version.py of the Python package or from the
// file build-version of the C++ distribution.
std::string torch_release(const fs::path &folder)
{
  for (const char *name : {"version.py", "build-version"}) {
    std::ifstream file(folder.parent_path() / name);
    const bool python = fs::path(name).extension() == ".py";
    for (std::string line; std::getline(file, line);) {
      if (python && line.rfind("__version__", 0) != 0) continue;
      const auto begin = line.find_first_of("0123456789");
      if (begin == std::string::npos) continue;
      return line.substr(begin, line.find_first_not_of("0123456789.", begin) - begin);
    }
  }
  return {};
}

void *open_library(const fs::path &path, int how = 0)
{
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | how);
  if (!handle) {
    const char *reason = dlerror();
    throw std::runtime_error("cannot open " + path.string() + ": " + (reason ? reason : "") +
                             "; reinstall pair-pwmlff for this LAMMPS and this torch");
  }
  return handle;
}

// The libraries of this process whose names begin like this.
std::vector<fs::path> loaded_libraries(const std::string &name)
{
  std::pair<std::string, std::vector<fs::path>> found{name, {}};
  const auto visit = [](dl_phdr_info *library, std::size_t, void *data) {
    auto &[start, paths] = *static_cast<decltype(found) *>(data);
    const fs::path path = library->dlpi_name;
    if (path.filename().string().starts_with(start)) paths.push_back(path);
    return 0;
  };
  dl_iterate_phdr(visit, &found);
  return found.second;
}

// The release in a library that is open. One in a library that it is linked to does not count.
std::string embedded_release(const fs::path &path)
{
  void *const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void *const symbol = handle ? dlsym(handle, RELEASE_SYMBOL) : nullptr;
  Dl_info info{};
  std::error_code ignored;
  const bool own = symbol && dladdr(symbol, &info) && fs::equivalent(info.dli_fname, path, ignored);
  return own ? reinterpret_cast<Release *>(symbol)() : "another release";
}

// Libraries of another release or commit may have the same names and functions that differ.
void require_same_release(const fs::path &path)
{
  const std::string found = embedded_release(path);
  if (found == PWMLFF_RELEASE) return;
  const fs::path ours = plugin_folder();
  std::error_code ignored;
  if (fs::equivalent(path.parent_path(), ours, ignored))
    throw std::runtime_error(path.string() + " is of " + found + ", and " + LOADER_LIBRARY +
                             " beside it of " PWMLFF_RELEASE
                             ": install or build all of pair-pwmlff once more");
  throw std::runtime_error(
      "this process has " + path.string() + " of " + found + " already, and " + ours.string() +
      " is " PWMLFF_RELEASE ": use one of them here (import pwmlff and plugin load would have "
      "to be of one installation), or two processes");
}

// torch knows one library that registers our operators, of whatever release, and that registers
// itself with one library of models. Another copy of the same ones serves this style too, as where
// Python has imported pwmlff.kernels.
void require_same_models()
{
  for (const char *const name : UNIQUE)
    for (const fs::path &path : loaded_libraries(name)) require_same_release(path);
}

// By their paths, so that none of these names is found elsewhere, as in LD_LIBRARY_PATH. The system
// would take any that is loaded for ours.
template <std::size_t N> void open_libraries(const char *const (&names)[N])
{
  for (const char *const name : names) {
    if (loaded_libraries(name).empty()) open_library(plugin_folder() / name);
    for (const fs::path &path : loaded_libraries(name)) require_same_release(path);
  }
}

// Where the library of a function begins in memory; null without one.
const void *library_of(const char *function)
{
  Dl_info info{};
  const void *const address = dlsym(RTLD_DEFAULT, function);
  return address && dladdr(address, &info) ? info.dli_fbase : nullptr;
}

// Let torch call the BLAS and LAPACK that it brings along, not those of LAMMPS, which exports the
// plain loops of the reference implementation (its lib/linalg) under the same names. With these,
// products of float64 matrices in torch took most of the time of a step. A BLAS from elsewhere,
// linked to LAMMPS or preloaded, is left alone: it is there on purpose. A process with the address
// sanitizer would end where a library is opened so.
int own_functions_first()
{
#ifdef RTLD_DEEPBIND
  const void *const lammps = library_of("lammps_version");
  const bool sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;
  if (lammps && library_of("dgemm_") == lammps && !sanitized) return RTLD_DEEPBIND;
#endif
  return 0;
}

// The OpenMP runtime of torch, which torch comes to take later; the system need not have one.
void open_openmp()
try {
  dlopen((torch_folder() / OPENMP_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
} catch (const std::runtime_error &) {
  return;    // without torch it is that of the system
}

CreatePair *open_style()
{
  require_same_models();
  open_openmp();
  open_libraries(STYLE_DEPENDENCIES);
  const fs::path style = plugin_folder() / STYLE_LIBRARY;
  void *symbol = dlsym(open_library(style), STYLE_SYMBOL);
  if (!symbol)
    throw std::runtime_error(std::string("no ") + STYLE_SYMBOL + " in " + STYLE_LIBRARY +
                             "; reinstall pair-pwmlff");
  require_same_release(style);
  return reinterpret_cast<CreatePair *>(symbol);
}

void open_torch()
{
  static std::mutex mutex;    // LAMMPS instances may have a thread each
  static bool open = false;
  const std::lock_guard lock(mutex);
  if (open) return;
  const fs::path torch = torch_folder();
  const std::string release = torch_release(torch);
  if (release != PWMLFF_TORCH_VERSION)
    throw std::runtime_error("found torch " + (release.empty() ? "of unknown release" : release) +
                             " in " + torch.string() +
                             ", but the plugin was compiled against torch " PWMLFF_TORCH_VERSION
                             ": install that release, or reinstall pair-pwmlff against this one "
                             "(torch " PWMLFF_TORCH_RANGE " are supported)");
  require_same_models();
  open_library(torch / TORCH_LIBRARY, own_functions_first());
  open_libraries(TORCH_DEPENDENCIES);
  open = true;
}

// Seconds by which ranks may come here one after the other, from the environment; nothing where
// that is no such number.
std::optional<double> load_timeout()
{
  const char *const text = std::getenv(TIMEOUT_VARIABLE);
  if (!text || !*text) return LOAD_TIMEOUT;
  char *end = nullptr;
  const double value = std::strtod(text, &end);
  return *end || !(value > 0.0) ? std::nullopt : std::optional(value);
}

}    // namespace
}    // namespace pair_pwmlff

extern "C" __attribute__((visibility("default"))) void *pwmlff_load_pair(void *ptr,
                                                                         const char *style)
{
  using namespace pair_pwmlff;
  auto *lmp = static_cast<LAMMPS_NS::LAMMPS *>(ptr);
  CreatePair *create = nullptr;

  const std::optional<double> timeout = load_timeout();
  const double seconds = timeout.value_or(LOAD_TIMEOUT);
  const std::string missing = missing_ranks(lmp->world, seconds);
  if (!missing.empty())
    stop_when_printed([&] {
      lmp->error->one(
          FLERR, "Pair style pwmlff: " + missing + " did not come here within " +
                     std::to_string(std::lround(std::ceil(seconds))) +
                     " s; probably the LAMMPS there does not know the style. Is " +
                     plugin_folder().string() +
                     " there on every node, is lmp the same, and does LAMMPS_PLUGIN_PATH reach "
                     "all ranks? Where ranks are only slow, set " +
                     TIMEOUT_VARIABLE + " to more seconds");
    });

  all_or_stop(lmp, [&] {
    if (!timeout)
      throw std::runtime_error(std::string("environment variable ") + TIMEOUT_VARIABLE + " is '" +
                               std::getenv(TIMEOUT_VARIABLE) +
                               "', expected a number of seconds above zero");
    create = open_style();
  });
  return create(ptr, style, open_torch);
}
