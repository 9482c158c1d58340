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

/// While it is there LAMMPS asks for these rows, and where KOKKOS has buffers on their GPU, there.
class HaloExchange::Active {
 public:
  Active(HaloExchange &halo, const pwmlff::ExchangedRows &rows) :
      halo(halo), space(halo.pair->execution_space)
  {
    const bool there = rows.device && halo.kokkos && halo.kokkos->gpu() == rows.device->gpu();
    halo.active_rows = &rows;
    halo.pair->execution_space = there ? Device : Host;
    halo.pair->reverse_comm_device = there;
  }
  ~Active()
  {
    halo.active_rows = nullptr;
    halo.pair->execution_space = space;
    halo.pair->reverse_comm_device = 0;    // nothing else that goes back is there
  }
  Active(const Active &) = delete;
  Active &operator=(const Active &) = delete;

 private:
  HaloExchange &halo;
  const ExecutionSpace space;
};

void HaloExchange::forward(const pwmlff::ExchangedRows &rows)
{
  const Active active(*this, rows);
  comm->forward_comm(pair, static_cast<int>(pwmlff::RowPacker::buffer_width(rows)));
}

void HaloExchange::reverse(const pwmlff::ExchangedRows &rows)
{
  const Active active(*this, rows);
  comm->reverse_comm(pair, static_cast<int>(pwmlff::RowPacker::buffer_width(rows)));
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
