/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Run something that can fail on each rank, and agree on the outcome.

#ifndef PWMLFF_COLLECTIVE_H
#define PWMLFF_COLLECTIVE_H

#include <mpi.h>

#include <exception>
#include <string>

namespace pair_pwmlff {

/// Call work() on every rank of comm. Collective.
/// @return the same text on every rank: empty if all succeeded, else what() of the lowest rank whose
///         work threw, so that all ranks can stop with one message instead of one stopping and
///         the others waiting for it.
template <typename Work> std::string first_failure(MPI_Comm comm, Work &&work)
{
  std::string message;
  bool failed = false;
  try {
    work();
  } catch (const std::exception &error) {
    failed = true;
    message = error.what();
  }

  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int mine = failed ? rank : size;
  int first = size;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
  if (first == size) return {};

  int length = static_cast<int>(message.size());
  MPI_Bcast(&length, 1, MPI_INT, first, comm);
  message.resize(length);
  MPI_Bcast(message.data(), length, MPI_CHAR, first, comm);
  if (message.empty()) message = "unknown error";
  return message;
}

}    // namespace pair_pwmlff

#endif
