// SPDX-License-Identifier: GPL-2.0-or-later

#include "rank_placement.h"

#include "collective.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace pair_pwmlff {

namespace {

// A launcher inside another one's allocation sets its own: the outer one (Slurm) comes last.
constexpr std::array LOCAL_RANK_VARIABLES = {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK",
                                             "SLURM_LOCALID"};

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

std::vector<pwmlff_gpu> list_gpus(pwmlff_cuda &cuda)
{
  std::vector<pwmlff_gpu> gpus(pwmlff_gpus(nullptr, 0, &cuda));
  if (!gpus.empty()) gpus.resize(pwmlff_gpus(gpus.data(), static_cast<int>(gpus.size()), &cuda));
  return gpus;
}

// Number of this rank on its node by the launcher's environment; -1 where that says nothing.
int local_rank_from_launcher()
{
  for (const char *name : LOCAL_RANK_VARIABLES) {
    const char *value = std::getenv(name);
    if (!value) continue;
    int rank = -1;
    const char *const end = value + std::strlen(value);
    const auto [next, error] = std::from_chars(value, end, rank);
    if (error == std::errc() && next == end && rank >= 0) return rank;
  }
  return -1;
}

// The same on all ranks of a communicator: whether each has a value, and all differ.
bool all_different(MPI_Comm comm, int value)
{
  int size;
  MPI_Comm_size(comm, &size);
  std::vector<int> values(size);
  MPI_Allgather(&value, 1, MPI_INT, values.data(), 1, MPI_INT, comm);
  const std::set<int> distinct(values.begin(), values.end());
  return static_cast<int>(distinct.size()) == size && *distinct.begin() >= 0;
}

struct NodeRank {
  int rank, size;
};

NodeRank rank_on_node(const Ranks &ranks, const std::vector<pwmlff_gpu> &visible, std::string &note)
{
  int rank, size, in_job;
  MPI_Comm_rank(ranks.world, &rank);
  MPI_Comm_size(ranks.world, &size);
  MPI_Comm_size(MPI_COMM_WORLD, &in_job);    // a number; nothing is sent

  // Ranks of a node that see different GPUs do not compete for them.
  std::uint32_t color = 2166136261U;    // FNV-1a of the UUIDs
  for (const auto &gpu : visible)
    for (const char *c = gpu.uuid; *c; ++c)
      color = (color ^ static_cast<unsigned char>(*c)) * 16777619U;
  MPI_Comm node, peers;
  MPI_Comm_split_type(ranks.world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_split(node, static_cast<int>(color & 0x7fffffffU), rank, &peers);
  NodeRank node_rank{};
  MPI_Comm_rank(peers, &node_rank.rank);
  MPI_Comm_size(peers, &node_rank.size);
  const int local_rank = local_rank_from_launcher();
  int usable = all_different(node, local_rank);
  MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, ranks.world);
  MPI_Comm_free(&peers);
  MPI_Comm_free(&node);

  if (ranks.npartitions == 1 && size == in_job) return node_rank;
  if (usable) return {local_rank, std::max(local_rank + 1, node_rank.size)};
  note = "the launcher does not tell ranks their place on the node, so GPUs are dealt out by rank "
         "number in the whole run: check that the nodes have equally many ranks";
  node_rank.rank += ranks.first_in_run;
  node_rank.size += ranks.first_in_run;
  return node_rank;
}

std::string plural(std::size_t n, const std::string &word) { return word + (n > 1 ? "s " : " "); }

}    // namespace

std::string gpu_label(const std::vector<pwmlff_gpu> &visible, int gpu)
{
  return "GPU " + std::to_string(gpu) + " (" + visible[gpu].name + ", " + visible[gpu].pci_bus_id +
         ")";
}

std::string host_name()
{
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  return name.data();
}

std::string rank_on_host(MPI_Comm comm)
{
  int rank;
  MPI_Comm_rank(comm, &rank);
  return "rank " + std::to_string(rank) + " on host " + host_name();
}

DeviceChoice choose_device(const Ranks &ranks, const pwmlff::DevicePolicy &policy)
{
  DeviceChoice choice;
  if (policy.mode == pwmlff::DevicePolicy::Mode::cpu) return choice;    // no driver is even asked

  pwmlff_cuda cuda{};
  choice.warn_of_idle = policy.mode != pwmlff::DevicePolicy::Mode::list && ranks.npartitions == 1;
  choice.visible = list_gpus(cuda);
  const NodeRank node_rank = rank_on_node(ranks, choice.visible, choice.note);

  std::string problem = cuda.reason;
  try {
    choice.gpu = pwmlff::device_of_rank(node_rank.rank, node_rank.size,
                                        static_cast<int>(choice.visible.size()), policy);
  } catch (const std::exception &error) {
    problem = error.what() + (problem.empty() ? "" : " (" + problem + ")");
  }
  if (choice.gpu != pwmlff::CPU && !choice.visible[choice.gpu].supported) {
    const pwmlff_gpu &gpu = choice.visible[choice.gpu];
    problem = gpu_label(choice.visible, choice.gpu) + " has compute capability " +
              std::to_string(gpu.major) + "." + std::to_string(gpu.minor) +
              ", and this build has kernels from " + std::to_string(cuda.oldest_supported / 10) +
              "." + std::to_string(cuda.oldest_supported % 10) +
              " on; rebuild it with PWMLFF_CUDA_ARCHITECTURES";
    choice.gpu = pwmlff::CPU;
  }
  if (choice.gpu != pwmlff::CPU) return choice;
  if (policy.demands_gpu())
    throw std::runtime_error(problem + " [" + rank_on_host(ranks.world) + "]");
  choice.reason = problem;
  return choice;
}

std::string separate_simulations(int nprocs)
{
  const char *const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (nprocs > 1 || !tasks || std::strtol(tasks, nullptr, 10) <= 1) return {};
  for (const char *variable : {"PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (std::getenv(variable)) return {};
  return std::string("srun has started lmp ") + tasks +
         " times, and each is a simulation of its own over the same files; srun --mpi=pmi2 makes "
         "them ranks of one (srun --mpi=list)";
}

DeviceReport report_devices(MPI_Comm comm, const DeviceChoice &choice,
                            const std::string &idle_because, int nthreads)
{
  // One line each: host, device, its UUID, why not a GPU; then one line for each visible GPU.
  const bool has_gpu = choice.gpu != pwmlff::CPU, on_gpu = has_gpu && idle_because.empty();
  std::string record = host_name() + "\n" +
                       (on_gpu ? gpu_label(choice.visible, choice.gpu) : "cpu") + "\n" +
                       (on_gpu ? choice.visible[choice.gpu].uuid : "") + "\n" +
                       (has_gpu ? idle_because : choice.reason) + "\n";
  for (std::size_t k = 0; on_gpu && k < choice.visible.size(); ++k)
    record += std::string(choice.visible[k].uuid) + " " +
              gpu_label(choice.visible, static_cast<int>(k)) + "\n";

  struct Use {
    std::string device, uuid;
    std::vector<int> ranks;
  };
  struct Host {
    std::vector<Use> uses;                         // in the order of their first ranks
    std::map<std::string, std::string> visible;    // descriptions by UUID
    std::set<std::string> reasons;
  };
  std::map<std::string, Host> hosts;
  const std::vector<std::string> records = gathered(comm, record);
  for (std::size_t r = 0; r < records.size(); ++r) {
    std::istringstream lines(records[r]);
    std::string name, device, uuid, reason;
    std::getline(lines, name);
    std::getline(lines, device);
    std::getline(lines, uuid);
    std::getline(lines, reason);
    Host &host = hosts[name];
    if (!reason.empty()) host.reasons.insert(reason);
    for (std::string line; std::getline(lines, line);) {
      const auto blank = line.find(' ');
      host.visible.emplace(line.substr(0, blank), line.substr(blank + 1));
    }
    // Numbers of GPUs may mean different ones to different ranks; UUIDs do not.
    auto use = std::find_if(host.uses.begin(), host.uses.end(), [&](const Use &other) {
      return uuid.empty() ? other.device == device : other.uuid == uuid;
    });
    if (use == host.uses.end()) use = host.uses.insert(use, {device, uuid, {}});
    use->ranks.push_back(static_cast<int>(r));
  }

  DeviceReport report;
  for (const auto &[name, host] : hosts) {
    for (const auto &[device, uuid, ranks] : host.uses) {
      report.table += "  host " + name + ": " + plural(ranks.size(), "rank") + ranges(ranks) +
                      " on " + device + ", " + std::to_string(nthreads) +
                      (nthreads > 1 ? " threads each\n" : " thread each\n");
      if (!uuid.empty() && ranks.size() > 1)
        report.warnings.push_back(
            "ranks " + ranges(ranks) + " share " + device + " of host " + name +
            ": they compute in turns, and each keeps a CUDA context in its memory; start as many "
            "ranks as there are GPUs, or NVIDIA MPS");
    }
    for (const auto &reason : host.reasons)
      report.table += "  host " + name + ": no GPU: " + reason + "\n";
    std::string idle;
    for (const auto &[uuid, device] : host.visible)
      if (std::none_of(host.uses.begin(), host.uses.end(),
                       [&uuid = uuid](const Use &use) { return use.uuid == uuid; }))
        idle += (idle.empty() ? "" : ", ") + device;
    if (choice.warn_of_idle && !idle.empty())
      report.warnings.push_back("host " + name + " has idle GPUs: " + idle +
                                "; start one rank for each");
  }
  if (!choice.note.empty() && !records.empty()) report.table += "  " + choice.note + "\n";
  return report;
}

}    // namespace pair_pwmlff
