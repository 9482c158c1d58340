// SPDX-License-Identifier: GPL-2.0-or-later

// Opens the library with the pair style when the style is first used, and torch when it reads the
// first model file that is TorchScript.
//
// Loading libtorch costs every rank about a quarter of a second and 100 MB; an lmp that has the
// plugin installed but runs something else, or a NEP, must not spend that. So pwmlffplugin.so,
// which LAMMPS opens at its start, knows neither LAMMPS, MPI nor torch; once it has seen that it
// fits, it opens this one, which knows LAMMPS and MPI. On the first use this one opens the style,
// and gives it a function that finds torch, compares its release with the one that libpwmlff_torch
// was compiled against (the C++ interface of torch changes with every release), and only then opens
// both.

#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace pair_pwmlff {

constexpr const char *LOADER_LIBRARY = "libpwmlff_loader.so";
constexpr const char *LOADER_SYMBOL = "pwmlff_load_pair";

/// Opens torch and the library with what needs it, once in a process; may be called again.
/// @throws std::runtime_error that says what is missing
using OpenTorch = void();

/// Path of the shared library that a function is part of, symbolic links followed, as what it needs
/// lies beside the real one.
inline std::filesystem::path library_path(const void *function)
{
  Dl_info info{};
  dladdr(function, &info);
  std::error_code ignored;
  const auto real = std::filesystem::canonical(info.dli_fname, ignored);
  return real.empty() ? std::filesystem::path(info.dli_fname) : real;
}

}    // namespace pair_pwmlff

/// Create a PairPWMLFF for the given LAMMPS instance. Collective over the ranks of its world; if
/// any rank cannot, all of them stop with that rank's message through Error::all. Where other ranks
/// do not come, as their LAMMPS has no such style, it stops through Error::one after
/// PWMLFF_LOAD_TIMEOUT seconds.
/// @param style  its name in the input
extern "C" void *pwmlff_load_pair(void *lmp, const char *style);

using LoadPair = decltype(pwmlff_load_pair);
