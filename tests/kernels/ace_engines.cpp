// SPDX-License-Identifier: GPL-2.0-or-later

// ACE: the engine against the plain evaluation: forms of files, precisions, instruction sets,
// threads, virials of atoms, species that are absent. Exits with 1 where something differs.
// Arguments: files to try in place of random ones.

#include "ace_files.h"
#include "comparison.h"
#include "core/family.h"
#include "families/ace/plain_ace.h"
#include "families/ace/read_ace.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;
using ::compare;

/// @param absent  a species, or -1
void check_engine(const std::string &name, const AceNetwork &source, int absent)
{
  const auto network = read_network(Arrays::read(ace_arrays(source).written()));
  std::vector<bool> present(source.species.size(), true);
  if (absent >= 0) present[absent] = false;
  const int nspecies = static_cast<int>(present.size());
  PlainAce plain(source);
  const Cluster small(3, 3.0, nspecies, absent), large(45, 8.0, nspecies, absent);
  for (const Cluster *cluster : {&small, &large}) {
    Input input = cluster->input;
    const Evaluation wanted = plain.evaluate(input);
    for (const Precision precision : {Precision::exact, Precision::tables, Precision::mixed}) {
      const bool single = precision == Precision::mixed;
      const auto engine = network->engine({precision, present});
      for (const int nthreads : {1, 3}) {
        input.nthreads = nthreads;
        compare(name + ", " + engine->processor() + (single ? ", mixed: " : ": "), input,
                engine->evaluate(input), wanted, single ? 2e-6 : 2e-13);
      }
    }
  }
}

}    // namespace

int main(int argc, char **argv)
{
  std::vector<std::pair<std::string, std::string>> files;
  for (int k = 1; k < argc; ++k) {
    std::ifstream file(argv[k]);
    files.emplace_back(argv[k], std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc == 1)
    for (const ace_files::Form &form : ace_files::forms())
      files.emplace_back(form.grace ? "GRACE/FS" : form.radial + ", " + form.inner, file(form));
  for (const char *set : {"baseline", "avx2", "avx512"}) {
    setenv("PWMLFF_CPU", set, 1);
    try {
      for (const auto &[name, text] : files) {
        const AceNetwork network = read_ace(text);
        check_engine(name, network, -1);
        if (network.nspecies() > 1) check_engine(name + ", one absent", network, 1);
      }
    } catch (const std::runtime_error &error) {
      if (std::string(set) == "baseline") throw;    // this processor does not run the others
    }
  }
  return failures > 0;
}
