// SPDX-License-Identifier: GPL-2.0-or-later

#include "instruction_set.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace pwmlff {
namespace {

#ifdef __x86_64__
// Whether processor and system run x86-64-v3 (v4): what a compiler may use for -march= of that
// name. GCC 11 and Clang 16 do not know the names of the levels here, nor those of all features.
bool runs_v3()
{
  unsigned eax, ebx, ecx = 0, edx, extended = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return false;
  if (!__get_cpuid(0x80000001, &eax, &ebx, &extended, &edx)) return false;
  return (ecx & bit_MOVBE) && (ecx & bit_F16C) && (extended & bit_LZCNT) &&
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}

bool runs_v4()
{
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

struct Known {
  const char *name;
  InstructionSet set;
  bool (*supported)();    // by processor and system
};

// From the most to the least capable.
constexpr Known instruction_sets[] = {
#ifdef __x86_64__
    {"avx512", InstructionSet::avx512, runs_v4},
    {"avx2", InstructionSet::avx2, runs_v3},
#endif
    {"baseline", InstructionSet::baseline, [] { return true; }},
};

const Known &choose()
{
  static constexpr const char *variable = "PWMLFF_CPU";
  const char *const wanted = std::getenv(variable);
  std::string known;
  for (const Known &one : instruction_sets) {
    if (!one.supported()) continue;
    if (!wanted || !*wanted || std::strcmp(wanted, one.name) == 0) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw std::runtime_error(std::string("environment variable ") + variable + " is '" + wanted +
                           "'; this processor runs " + known);
}

}    // namespace

InstructionSet choose_instruction_set() { return choose().set; }

const char *instruction_set_name() { return choose().name; }

}    // namespace pwmlff
