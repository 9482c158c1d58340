// SPDX-License-Identifier: GPL-2.0-or-later

// The trial of two devices, by engines that only say how long they take.
//
//   try_devices trial GPU CPU NATOMS ...  three words for each rank: seconds of a step, or out of
//                                         memory in the warm-up (warm) or later (late)
//   try_devices piece REACH SHELL MOST    of the share on standard input: edges, whether it
//                                         repeats, then species and place of each atom
//
// Ranks print one after the other.

#include "pair_pwmlff/device_trial.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

using namespace pwmlff::models;
using pair_pwmlff::Piece, pair_pwmlff::Share, pair_pwmlff::DeviceTrial;

namespace {

double now = 0.0;

class Fake : public Model {
 public:
  explicit Fake(std::string word) : Model(information()), word(std::move(word)) {}
  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fake"; }
  std::string engine() const override { return "fake"; }
  bool on_gpu() const override { return false; }
  Needs needs() const override { return {1.0, 0, 0, nullptr, 0}; }
  bool has_atom_virial() const override { return false; }
  const Evaluation &evaluate(const Input &) override
  {
    const bool first = ncalls++ == 0;
    if (word == (first ? "warm" : "late")) throw std::runtime_error("out of memory\nbacktrace");
    now += first ? 1000.0 : std::atof(word.c_str());    // the first call compiles
    return result;
  }

 private:
  static ModelInfo information()
  {
    ModelInfo info{};
    info.cutoff = info.interaction_range = 1.0;
    info.atom_type = {1};
    return info;
  }
  std::string word;
  int ncalls = 0;
  Evaluation result{};
};

void trial(int argc, char **argv)
{
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 + 3 * size) throw std::runtime_error("three words for each rank");
  const char *const *const mine = argv + 2 + 3 * rank;
  Fake gpu(mine[0]), cpu(mine[1]);
  Share share{{{{5.0, 0.0, 0.0}, {0.0, 5.0, 0.0}, {0.0, 0.0, 5.0}}}, {true, true, true}, {}, {}};
  for (int k = 0; k < std::atoi(mine[2]); ++k) {
    share.species.push_back(0);
    share.x.insert(share.x.end(), {k + 0.5, 0.0, 0.0});
  }
  const DeviceTrial found = pair_pwmlff::try_devices(MPI_COMM_WORLD, gpu, cpu, std::move(share),
                                                     0.0, 1, [] { return now; });
  for (int turn = 0; turn < size; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (turn != rank) continue;
    std::printf("%s|%g|%g|%d|%s|%s\n", found.takes_cpu() ? "CPU" : "GPU", found.gpu.seconds,
                found.cpu.seconds, found.natoms, found.gpu.failure.c_str(),
                found.cpu.failure.c_str());
    std::fflush(stdout);
  }
}

void piece(char **argv)
{
  Share share;
  for (auto &edge : share.edges) std::cin >> edge[0] >> edge[1] >> edge[2];
  std::cin >> share.repeats[0] >> share.repeats[1] >> share.repeats[2];
  int species;
  for (double x, y, z; std::cin >> species >> x >> y >> z;) {
    share.species.push_back(species);
    share.x.insert(share.x.end(), {x, y, z});
  }
  share.reduce(std::atoi(argv[4]));
  const double reach = std::atof(argv[2]);
  Piece made(share, 2, reach, std::atof(argv[3]));
  made.neighbors.update(made.x.data());
  const pwmlff::Input input = made.neighbors.input({reach, 0, 3, nullptr, 0});
  double sum = 0.0;
  for (std::int64_t k = 0; k < 3 * input.nedges; ++k) sum += input.edge_vec[k] * input.edge_vec[k];
  std::printf("%d %d %lld %lld %.12g\n", share.natoms(), input.ncenters,
              static_cast<long long>(input.nedges), static_cast<long long>(input.nnodes), sum);
}

}    // namespace

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  if (std::string(argv[1]) == "trial") trial(argc, argv);
  else piece(argv);
  MPI_Finalize();
  return 0;
}
