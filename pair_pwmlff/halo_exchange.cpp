// SPDX-License-Identifier: GPL-2.0-or-later

#include "halo_exchange.h"

#include "kokkos_atoms.h"

#include "comm.h"
#include "force.h"
#include "pair.h"

#include <algorithm>
#include <cstddef>
#include <utility>

using namespace LAMMPS_NS;

namespace pair_pwmlff {

// A hybrid style has asked its styles how much they need when it was made.
void HaloExchange::init(int width, const KokkosAtoms *kokkos_)
{
  kokkos = kokkos_;
  for (Pair *const one : {pair, force->pair}) {
    one->comm_forward = std::max(one->comm_forward, width);
    one->comm_reverse = std::max(one->comm_reverse, width);
  }
}

void HaloExchange::take(const std::vector<int> &atom)
{
  std::vector<int> row(atom.size());
  for (std::size_t r = 0; r < atom.size(); ++r) row[atom[r]] = static_cast<int>(r);
  packer.take(std::move(row));
}

template <class Communicate>
void HaloExchange::communicate(const pwmlff::ExchangedRows &rows, const Communicate &work)
{
  active_rows = &rows;
  // Where LAMMPS has buffers on a GPU, it asks a style that works there to fill them there.
  const bool there = rows.device && kokkos && kokkos->gpu() == rows.device->gpu();
  const ExecutionSpace before = std::exchange(pair->execution_space, there ? Device : Host);
  work(static_cast<int>(pwmlff::RowPacker::buffer_width(rows)));
  pair->execution_space = before;
  active_rows = nullptr;
}

void HaloExchange::forward(const pwmlff::ExchangedRows &rows)
{
  communicate(rows, [&](int width) { comm->forward_comm(pair, width); });
}

void HaloExchange::reverse(const pwmlff::ExchangedRows &rows)
{
  communicate(rows, [&](int width) { comm->reverse_comm(pair, width); });
}

int HaloExchange::move(pwmlff::RowMove move, const pwmlff::AtomsToMove &atoms, double *buffer)
{
  packer.move(move, *active_rows, atoms, buffer);
  return atoms.n * static_cast<int>(pwmlff::RowPacker::buffer_width(*active_rows));
}

int HaloExchange::move_there(pwmlff::RowMove move, const pwmlff::AtomsToMove &atoms, double *buffer)
{
  packer.move_there(move, *active_rows, atoms, buffer);
  active_rows->device->synchronize();
  return atoms.n * static_cast<int>(pwmlff::RowPacker::buffer_width(*active_rows));
}

bool HaloExchange::has_others() const { return comm->nprocs > 1; }

void HaloExchange::sum(double *numbers, int n)
{
  if (has_others()) MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, world);
}

}    // namespace pair_pwmlff
