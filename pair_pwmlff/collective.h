// SPDX-License-Identifier: GPL-2.0-or-later

// Collective error handling: run something that can fail on each rank and agree on the outcome,
// wait for ranks that may never come, end the run for what one rank alone has found.

#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace pair_pwmlff {

/// Call work() on every rank of comm. Collective.
/// @return the same text on every rank: empty if all succeeded, else what() of the lowest rank
///         whose work threw, so that all ranks can stop with one message instead of one stopping
///         and the others waiting for it.
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

/// The same over the ranks of a LAMMPS; a failure on any of them stops all, through Error::all.
template <typename Lammps, typename Work> void all_or_stop(Lammps *lmp, Work &&work)
{
  const std::string failure = first_failure(lmp->world, work);
  if (!failure.empty()) lmp->error->all(__FILE__, __LINE__, "Pair style pwmlff: " + failure);
}

/// What all ranks have on rank 0, one after the other; empty elsewhere. Collective.
/// @param mine    a vector or a string
/// @param starts  [size + 1] on rank 0: where that of each begins, and the last ends
template <typename Values>
Values concatenated(MPI_Comm comm, const Values &mine, MPI_Datatype type, std::vector<int> &starts)
{
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int n = static_cast<int>(mine.size());
  std::vector<int> counts(size);
  MPI_Gather(&n, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, comm);
  starts.assign(size + 1, 0);
  for (int k = 0; rank == 0 && k < size; ++k) starts[k + 1] = starts[k] + counts[k];
  Values all(static_cast<std::size_t>(starts[size]), {});
  MPI_Gatherv(mine.data(), n, type, all.data(), counts.data(), starts.data(), type, 0, comm);
  return all;
}

/// The numbers of all ranks on rank 0, in the order of ranks; empty elsewhere. Collective.
inline std::vector<double> gathered(MPI_Comm comm, const std::vector<double> &mine)
{
  std::vector<int> starts;
  return concatenated(comm, mine, MPI_DOUBLE, starts);
}

/// The same for a text of each rank. Collective.
inline std::vector<std::string> gathered(MPI_Comm comm, const std::string &mine)
{
  std::vector<int> starts;
  const std::string all = concatenated(comm, mine, MPI_CHAR, starts);
  std::vector<std::string> texts;
  for (std::size_t k = 0; !all.empty() && k + 1 < starts.size(); ++k)
    texts.push_back(all.substr(starts[k], starts[k + 1] - starts[k]));
  return texts;
}

/// Rows of all ranks on rank 0, in the order of their first number, the ID of an atom; empty
/// elsewhere. Collective.
/// @param mine [n, width] of this rank
inline std::vector<double> gathered_by_id(MPI_Comm comm, const std::vector<double> &mine, int width)
{
  const std::vector<double> all = gathered(comm, mine);
  const auto n = static_cast<std::size_t>(width);
  std::vector<const double *> rows;
  for (std::size_t k = 0; k < all.size(); k += n) rows.push_back(&all[k]);
  std::sort(rows.begin(), rows.end(), [](const double *a, const double *b) { return *a < *b; });
  std::vector<double> sorted;
  sorted.reserve(all.size());
  for (const double *const row : rows) sorted.insert(sorted.end(), row, row + width);
  return sorted;
}

/// Wait until all ranks of comm have called this, but not for ever. For places that a rank may
/// miss.
/// @return empty once all are here; after that many seconds, the ranks that are not, in words (rank
///         0 knows which; the others wait five seconds longer, so that its answer comes first).
///         Messages are then left pending: all that can follow is the end of the run.
inline std::string missing_ranks(MPI_Comm comm, double seconds)
{
  constexpr int TAG = 20617;
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const double deadline = MPI_Wtime() + seconds + (rank == 0 ? 0.0 : 5.0);

  // On rank 0 the arrival of each other rank, elsewhere the own one.
  std::vector<MPI_Request> arrivals(size, MPI_REQUEST_NULL);
  for (int other = 1; rank == 0 && other < size; ++other)
    MPI_Irecv(nullptr, 0, MPI_BYTE, other, TAG, comm, &arrivals[other]);
  if (rank > 0) MPI_Isend(nullptr, 0, MPI_BYTE, 0, TAG, comm, &arrivals[rank]);
  MPI_Request all;
  MPI_Ibarrier(comm, &all);
  int done = 0;
  while (MPI_Test(&all, &done, MPI_STATUS_IGNORE), !done) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (MPI_Wtime() < deadline) continue;
    if (rank != 0) return "rank 0, or one that it waits for,";
    std::string missing;
    for (int other = 1; other < size; ++other) {
      MPI_Test(&arrivals[other], &done, MPI_STATUS_IGNORE);
      if (!done) missing += (missing.empty() ? "" : ", ") + std::to_string(other);
    }
    return "of " + std::to_string(size) + " ranks, " + missing;
  }
  MPI_Waitall(size, arrivals.data(), MPI_STATUSES_IGNORE);
  return {};
}

/// Call stop(), which says why and throws what ends the run. One rank that aborts ends all, and
/// what is on its way through the launcher then can get lost: time to print first.
template <typename Stop> [[noreturn]] void stop_when_printed(Stop &&stop)
{
  static constexpr std::chrono::milliseconds time_to_print(300);
  try {
    stop();
  } catch (...) {
    std::fflush(nullptr);
    std::this_thread::sleep_for(time_to_print);
    throw;
  }
  std::terminate();
}

}    // namespace pair_pwmlff
