// SPDX-License-Identifier: GPL-2.0-or-later

// Which rank runs on which GPU: a function of numbers alone, the same for the pair style, for
// Python and for a plan of machines that are not there.
//
//   auto   GPU  local_rank modulo nvisible;  the CPU where no GPU is visible
//   gpu    the same, but an error where no GPU is visible
//   cpu    the CPU
//   list   like "0,1,3": the named GPUs in turn, list[local_rank modulo length of list]
//
// local_rank counts, from 0, the ranks of a node that see the same GPUs; GPUs are counted among the
// visible ones (CUDA_VISIBLE_DEVICES). Dealing them out in turn, instead of in blocks, has three
// properties:
//   balanced    ranks per GPU differ by one at most;
//   stable      a rank keeps its GPU however many ranks come after it;
//   node-local  other nodes do not matter, so they may have any number of ranks and GPUs.
// A launcher that shows each rank one GPU of its own gives every rank that GPU, as its number 0.

#pragma once

#include <string>
#include <vector>

namespace pwmlff {

/// In place of the index of a GPU.
constexpr int CPU = -1;

/// What a user asks for.
struct DevicePolicy {
  enum class Mode { automatic, cpu, gpu, list };
  Mode mode = Mode::automatic;
  std::vector<int> gpus;    // of a list

  /// Whether a GPU must be used, or the run stops.
  bool demands_gpu() const { return mode == Mode::gpu || mode == Mode::list; }
};

/// Read "auto", "cpu", "gpu" or a list like "0" or "0,1,3", in which a GPU may occur several times.
/// @throws std::invalid_argument for anything else
DevicePolicy parse_device_policy(const std::string &text);

/// Index of the GPU of a rank among those it sees, or CPU.
/// @param local_rank  0 .. local_size-1
/// @param nvisible    number of GPUs that the rank sees
/// @throws std::invalid_argument where a GPU is demanded and there is none, where a list names one
///         that is not there (for every rank, not only for the one that it falls to), or for
///         impossible numbers
int device_of_rank(int local_rank, int local_size, int nvisible, const DevicePolicy &policy);

}    // namespace pwmlff

extern "C" {

/// The same for other languages: the index of the GPU, -1 for the CPU, or -2 for an error whose
/// text, ended by a zero, is then in message[0 .. size-1].
int pwmlff_device_of_rank(int local_rank, int local_size, int nvisible, const char *policy,
                          char *message, int size);
}
