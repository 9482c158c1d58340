// SPDX-License-Identifier: GPL-2.0-or-later

// Which rank runs where: the MPI calls that feed kernels/placement/device_mapping.h, and the table
// in the log.

#pragma once

#include "placement/device_mapping.h"
#include "placement/inventory.h"

#include <mpi.h>

#include <string>
#include <vector>

namespace pair_pwmlff {

/// The ranks that run one LAMMPS, among those that the launcher started.
struct Ranks {
  MPI_Comm world;      // of this LAMMPS
  int npartitions;     // of the run (-partition)
  int first_in_run;    // rank in the whole run of rank 0 of this world
};

/// The device of this rank.
struct DeviceChoice {
  int gpu = pwmlff::CPU;              // index among the visible GPUs
  bool warn_of_idle = false;          // the user left it to this style which GPUs are used
  std::string reason;                 // why the CPU, where a GPU would have been taken
  std::string note;                   // for the log; the same on all ranks
  std::vector<pwmlff_gpu> visible;    // empty where the user asks for the CPU: none was looked for
};

/// Choose by the rank's number on its node. Ranks of several partitions spread over the GPUs of a
/// node like those of one. Collective over ranks.world, and over nothing else: partitions reach
/// this at different times, or not at all.
///
/// That number is counted by MPI (MPI_COMM_TYPE_SHARED) where this LAMMPS has all ranks of the job,
/// and read from the launcher's environment where it has not (MPI_LOCALRANKID,
/// OMPI_COMM_WORLD_LOCAL_RANK, MV2_COMM_WORLD_LOCAL_RANK, PMI_LOCAL_RANK, SLURM_LOCALID). Where
/// the launcher says nothing, or gives two ranks of a node one number, the rank's number in the run
/// is taken, with a note.
///
/// @throws std::runtime_error, on the ranks concerned, where a GPU is demanded and cannot be used
DeviceChoice choose_device(const Ranks &ranks, const pwmlff::DevicePolicy &policy);

/// "GPU 0 (NVIDIA H200, 0000:18:00.0)"
std::string gpu_label(const std::vector<pwmlff_gpu> &visible, int gpu);

/// "rank 3 on host n1", for messages.
std::string rank_on_host(MPI_Comm comm);

/// The name of this host.
std::string host_name();

/// Whether srun has started several lmp that know nothing of each other: a warning, or empty.
/// @param nprocs  ranks of which this one knows
std::string separate_simulations(int nprocs);

/// What the log says about devices.
struct DeviceReport {
  std::string table;                    // one line for each host and device: ranks and threads
  std::vector<std::string> warnings;    // of GPUs that several ranks share, and of idle ones
};

/// Collective over comm; the report is complete on rank 0 and empty elsewhere.
/// @param idle_because  empty where this rank evaluates a model on its GPU, else why not, in one
///        line
DeviceReport report_devices(MPI_Comm comm, const DeviceChoice &choice,
                            const std::string &idle_because, int nthreads);

}    // namespace pair_pwmlff
