// SPDX-License-Identifier: GPL-2.0-or-later

// The fast engines of a NEP against the plain evaluation: forms of files, precisions, instruction
// sets, threads, devices, virials of atoms, species that are absent. Exits with 1 where something
// differs. Arguments: files of models to try in place of random ones.

#include "comparison.h"
#include "core/gpu/gpu_neighbors.h"
#include "core/images.h"
#include "families/nep/nep_engine.h"
#include "families/nep/plain_nep.h"
#include "families/nep/read_nep.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;
using ::compare;

/// Rows behind the centers are images of the first of them. There is another rank, which has the
/// same atoms.
class TwoRanks : public Images {
 public:
  explicit TwoRanks(const Input &input) : Images(homes(input), input.ncenters) {}
  void sum(double *numbers, int n) override
  {
    for (int k = 0; k < n; ++k) numbers[k] *= 2.0;
  }
  bool has_others() const override { return true; }

 private:
  static std::vector<int> homes(const Input &input)
  {
    std::vector<int> result;
    for (int r = 0; r < input.nrows; ++r) result.push_back(r % input.ncenters);
    return result;
  }
};

/// Of the other rank, the sizes of sums are others.
class DifferentRanks : public TwoRanks {
 public:
  using TwoRanks::TwoRanks;
  void sum(double *numbers, int n) override
  {
    TwoRanks::sum(numbers, n);
    if (n == 2) numbers[1] *= 1.001;
  }
};

/// A tilted box, with images of none of them as candidates.
void put_in_box(Input &input)
{
  static constexpr double box[9] = {110.0, 0.0, 0.0, 3.0, 13.0, 0.0, -2.0, 4.0, 14.0};
  input.cell = box;
  input.want_born = true;
}

/// A head and as many random numbers as the reader says that it expects.
std::string random_file(const std::string &head)
{
  std::string text = head;
  int count = 0;
  try {
    read_nep(head + "0\n");
  } catch (const std::exception &error) {
    const std::string what = error.what();
    count = std::atoi(what.c_str() + what.find("expected ") + 9);
  }
  for (int k = 0; k < count; ++k) text += std::to_string(uniform(-0.4, 0.4)) + "\n";
  return text;
}

/// @param close  allowed errors of energies, for forces of at most 1 eV/angstrom
void compare_charges(const std::string &name, const Input &input, const Evaluation &found,
                     const Evaluation &wanted, double close)
{
  close = compare(name, input, found, wanted, close);
  if (!wanted.charge) return;
  compare(name + "mean charge", &found.mean_charge, &wanted.mean_charge, 1, close);
  compare(name + "charges", found.charge, wanted.charge, input.ncenters, close);
  compare(name + "potentials", found.potential, wanted.potential, input.ncenters, 100 * close);
  compare(name + "Born charges", found.born, wanted.born, 9 * input.nrows, 3 * close);
}

bool has_gpu()
{
  try {
    Device::make("cuda:0");
    return true;
  } catch (const std::runtime_error &) {
    return false;
  }
}

/// A network of random numbers and clusters that it is evaluated for.
class Check {
 public:
  /// @param absent  a species, or -1
  Check(const std::string &text, int absent) :
      name(text.substr(0, text.find('\n'))),
      plain(read_nep(text)),
      charged(plain.network().charge_mode > 0),
      present(plain.network().nspecies(), true)
  {
    const int nspecies = static_cast<int>(present.size());
    clusters.emplace_back(3, 3.0, nspecies, absent);
    clusters.emplace_back(45, 8.0, nspecies, absent);
    if (charged)
      for (Cluster &cluster : clusters) put_in_box(cluster.input);
    if (absent >= 0) present[absent] = false;
  }

  void cpu()
  {
    for (const Cluster &cluster : clusters) {
      TwoRanks images(cluster.input);
      Input whole = cluster.input;
      if (charged) whole.exchange = &images;
      const Evaluation wanted = plain.evaluate(whole);
      for (const bool single : {false, true}) {
        const auto engine = make_nep_engine(plain.network(), {precision(single), present});
        for (const int nthreads : {1, 3}) {
          Input input = whole;
          input.nthreads = nthreads;
          compare_charges(label(engine->processor(), single), input, engine->evaluate(input),
                          wanted, gate(single));
        }
      }
    }
  }

  /// @param ncenters     of a cluster, at most
  /// @param chunk_bytes  of the engine, 0 for the usual
  void device(const std::string &which, int ncenters, std::size_t chunk_bytes)
  {
    for (const Cluster &cluster : clusters) {
      Input input = cluster.input;
      input.ncenters = std::min(input.ncenters, ncenters);
      TwoRanks images(input);
      if (charged) input.exchange = &images;
      const Evaluation wanted = plain.evaluate(input);
      for (const bool single : {false, true}) {
        const auto engine = make_nep_engine(
            plain.network(), {precision(single), present, Device::make(which), chunk_bytes});
        GpuNeighbors neighbors(engine->device());
        neighbors.assign(input.ncenters, input.nrows, static_cast<int>(present.size()),
                         input.species, input.first, input.candidate);
        neighbors.update(input.nrows, input.x);
        input.on_device = &neighbors;
        for (int k = 0; k < 2; ++k)    // the second finds what the first has left
          compare_charges(label(engine->processor(), single), input, engine->evaluate(input),
                          wanted, gate(single));
      }
    }
  }

  /// Sums that ranks have not in common are told.
  void differing_sums(const std::string &which)
  {
    if (!charged) return;
    Input input = clusters.back().input;
    DifferentRanks images(input);
    input.exchange = &images;
    const auto device = which.empty() ? nullptr : Device::make(which);
    const auto engine = make_nep_engine(plain.network(), {Precision::exact, present, device});
    GpuNeighbors neighbors(device ? device : Device::make("cpu"));
    if (device) {
      neighbors.assign(input.ncenters, input.nrows, static_cast<int>(present.size()), input.species,
                       input.first, input.candidate);
      neighbors.update(input.nrows, input.x);
      input.on_device = &neighbors;
    }
    try {
      engine->evaluate(input);
      std::cout << name << ": sums that differ were not told\n";
      ++failures;
    } catch (const SumsDiffer &) {
    }
    TwoRanks same(input);
    input.exchange = &same;
    engine->evaluate(input);
  }

 private:
  double gate(bool single) const
  {
    return single ? charged ? 1e-5 : 2e-6 : charged ? 1e-12 : 1e-13;
  }
  static Precision precision(bool single) { return single ? Precision::mixed : Precision::exact; }
  std::string label(const std::string &processor, bool single) const
  {
    return name + ", " + processor + (single ? ", mixed: " : ": ");
  }

  std::string name;
  PlainNep plain;
  const bool charged;
  std::vector<Cluster> clusters;
  std::vector<bool> present;
};

void add_random(std::deque<Check> &all)
{
  const auto add = [&](const std::string &head, int absent = -1) {
    all.emplace_back(random_file(head), absent);
  };
  add("nep3 2 O Hf\ncutoff 5 4\nn_max 4 4\nbasis_size 8 8\nl_max 4 2 0\nANN 10 0\n");
  add("nep4 3 O Hf Zr\ncutoff 5 5\nn_max 4 4\nbasis_size 12 12\nl_max 4 2 1\nANN 30 0\n", 1);
  add("nep4 1 C\ncutoff 4.2 3.7\nn_max 10 8\nbasis_size 10 8\nl_max 4 2 1\nANN 17 0\n");
  add("nep5_zbl 2 O Hf\nzbl 1 2\ncutoff 6 4 100 50\nn_max 6 5\nbasis_size 7 6\n"
      "l_max 8 1 1 1 1 1 1\nANN 12 0\n");
  add("nep4_zbl 2 O Hf\nzbl 1.25 2.5 0.7\ncutoff 5 4.5 4 3.5 100 50\nn_max 0 0\n"
      "basis_size 0 0\nl_max 1 0 0\nANN 5 0\n",
      0);
  add("nep4_zbl 2 O Hf\nzbl 1 2\ncutoff 5 4\nn_max 3 0\nbasis_size 3 0\nl_max 0 0 0\nANN 6 0\n");
  add("nep4 1 Si\ncutoff 4 5\nn_max 1 1\nbasis_size 3 3\nl_max 1 0 0 0 0 0 1\nANN 4 0\n");
  add("nep5 2 O Hf\ncutoff 4 5\nn_max 2 19\nbasis_size 3 4\nl_max 3 1 0\nANN 6 5\n");
  add("nep4_zbl_charge1 2 O Hf\nzbl 1 2\ncutoff 5 4\nn_max 4 4\nbasis_size 8 8\nl_max 4 2 1\n"
      "ANN 10 0\n");
  add("nep5_charge2 3 O Hf Zr\ncutoff 4 4\nn_max 3 9\nbasis_size 5 5\nl_max 2 0 0\nANN 7 0\n", 1);
  add("nep4_temperature 2 O Hf\ncutoff 5 4\nn_max 15 12\nbasis_size 16 12\nl_max 2 0 1\n"
      "ANN 20 0\n");
}

void add_file(std::deque<Check> &all, const char *name)
{
  std::ifstream file(name);
  all.emplace_back(std::string(std::istreambuf_iterator<char>(file), {}), -1);
}

}    // namespace

int main(int argc, char **argv)
{
  std::deque<Check> all;
  for (int k = 1; k < argc; ++k) add_file(all, argv[k]);
  if (argc == 1) add_random(all);
  for (const char *set : {"baseline", "avx2", "avx512"}) {
    setenv("PWMLFF_CPU", set, 1);
    try {
      for (Check &check : all) check.cpu();
    } catch (const std::runtime_error &) {
      if (std::string(set) == "baseline") throw;    // this processor does not run the others
    }
  }
  unsetenv("PWMLFF_CPU");
  constexpr int everything = 1000;
  const bool gpu = has_gpu();
  for (Check &check : all) {
    check.device("cpu", everything, 0);
    check.device("cpu", everything, 1);    // a center at a time
    check.device("cpu:lanes", 4, 0);
    check.differing_sums("");
    check.differing_sums("cpu");
    if (!gpu) continue;
    check.device("cuda:0", everything, 0);
    check.device("cuda:0", 4, 1);
  }
  return failures > 0;
}
