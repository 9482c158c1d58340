/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "device_map.h"

#include <array>
#include <map>
#include <vector>

namespace pair_pwmlff {

namespace {

// 0 1 2 3 7 -> "0-3 7"
std::string ranges(const std::vector<int> &numbers)
{
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : " ") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

}    // namespace

std::string device_table(MPI_Comm comm, const std::string &device, int nthreads)
{
  int rank, size, length;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  MPI_Get_processor_name(host.data(), &length);
  std::vector<char> hosts(rank == 0 ? host.size() * size : 0);
  MPI_Gather(host.data(), static_cast<int>(host.size()), MPI_CHAR, hosts.data(),
             static_cast<int>(host.size()), MPI_CHAR, 0, comm);
  if (rank != 0) return {};

  std::map<std::string, std::vector<int>> ranks_of;
  for (int r = 0; r < size; ++r) ranks_of[&hosts[r * host.size()]].push_back(r);
  std::string text;
  for (const auto &[name, ranks] : ranks_of)
    text += "  host " + name + ": rank" + (ranks.size() > 1 ? "s " : " ") + ranges(ranks) + " on " +
            device + ", " + std::to_string(nthreads) +
            (nthreads > 1 ? " threads each\n" : " thread each\n");
  return text;
}

}    // namespace pair_pwmlff
