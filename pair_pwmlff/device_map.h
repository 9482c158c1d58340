/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Which rank runs where.

#ifndef PWMLFF_DEVICE_MAP_H
#define PWMLFF_DEVICE_MAP_H

#include <mpi.h>

#include <string>

namespace pair_pwmlff {

/// Table of hosts, their ranks, the device and the threads of each, one line per host.
/// Collective over comm; the text is complete on rank 0 and empty elsewhere.
std::string device_table(MPI_Comm comm, const std::string &device, int nthreads);

}    // namespace pair_pwmlff

#endif
