// SPDX-License-Identifier: GPL-2.0-or-later

// The choice of devices under MPI, on nodes with GPUs that are not there.
//
//   report_devices policy partitions
//
// A node has FAKE_GPUS of them, of which CUDA_VISIBLE_DEVICES (numbers) leaves some; FAKE_IDLE_RANK
// cannot use its own. Each partition prints its report, in their order.

#include "pair_pwmlff/collective.h"
#include "pair_pwmlff/rank_placement.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

int pwmlff_gpus(pwmlff_gpu *gpus, int capacity, pwmlff_cuda *cuda)
{
  *cuda = {13000, 13000, 80, ""};
  const char *present = std::getenv("FAKE_GPUS");
  const char *left = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> numbers;
  if (left) {
    std::istringstream words(left);
    for (std::string word; std::getline(words, word, ',');) numbers.push_back(std::stoi(word));
  } else {
    for (int k = 0; present && k < std::atoi(present); ++k) numbers.push_back(k);
  }
  const int count = static_cast<int>(numbers.size());
  if (count == 0) std::snprintf(cuda->reason, sizeof cuda->reason, "none in this test");
  for (int k = 0; k < count && k < capacity; ++k) {
    gpus[k] = {};
    std::snprintf(gpus[k].name, sizeof gpus[k].name, "Fake");
    std::snprintf(gpus[k].pci_bus_id, sizeof gpus[k].pci_bus_id, "bus %d", numbers[k]);
    std::snprintf(gpus[k].uuid, sizeof gpus[k].uuid, "GPU-%d", numbers[k]);
    gpus[k].major = std::getenv("FAKE_OLD") ? 7 : 9;
    gpus[k].supported = gpus[k].major >= 8;
  }
  return count;
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  const std::string policy = argv[1];
  const int npartitions = std::atoi(argv[2]);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int each = size / npartitions;
  const int partition = rank / each;
  MPI_Comm world;
  MPI_Comm_split(MPI_COMM_WORLD, partition, rank, &world);

  // One after the other: nothing in here may wait for another partition.
  for (int turn = 0; turn < npartitions; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (turn != partition) continue;
    pair_pwmlff::DeviceChoice choice;
    const std::string failure = pair_pwmlff::first_failure(world, [&] {
      choice = pair_pwmlff::choose_device({world, npartitions, each * partition},
                                          pwmlff::parse_device_policy(policy));
    });
    std::string text = "error: " + failure + "\n";
    if (failure.empty()) {
      const char *const idle = std::getenv("FAKE_IDLE_RANK");
      const bool is_idle = idle && rank == std::atoi(idle);
      const auto report =
          pair_pwmlff::report_devices(world, choice, is_idle ? "out of memory" : "", 1);
      text = report.table;
      for (const auto &warning : report.warnings) text += "warning: " + warning + "\n";
    }
    if (rank == each * partition) {
      std::fputs(("partition " + std::to_string(partition) + "\n" + text).c_str(), stdout);
      std::fflush(stdout);
    }
  }
  MPI_Comm_free(&world);
  MPI_Finalize();
  return 0;
}
