// SPDX-License-Identifier: GPL-2.0-or-later

#include "halo_exchange.h"

#include "comm.h"
#include "force.h"
#include "pair.h"

#include <algorithm>
#include <cstddef>
#include <utility>

using namespace LAMMPS_NS;

namespace pair_pwmlff {

// A hybrid style has asked its styles how much they need when it was made.
void HaloExchange::init(int width_)
{
  for (Pair *const one : {pair, force->pair}) {
    one->comm_forward = std::max(one->comm_forward, width_);
    one->comm_reverse = std::max(one->comm_reverse, width_);
  }
}

void HaloExchange::take(const std::vector<int> &atom)
{
  row.resize(atom.size());
  for (std::size_t r = 0; r < atom.size(); ++r) row[atom[r]] = static_cast<int>(r);
}

template <class Communicate>
void HaloExchange::communicate(double *of_double, float *of_float, int width_,
                               const Communicate &work)
{
  doubles = of_double;
  floats = of_float;
  width = width_;
  // Rows are on the host, where KOKKOS is on a GPU and the atoms of the style are there, too.
  const ExecutionSpace place = std::exchange(pair->execution_space, Host);
  work();
  pair->execution_space = place;
  width = 0;
}

void HaloExchange::forward(double *rows, int width_)
{
  communicate(rows, nullptr, width_, [&] { comm->forward_comm(pair, width_); });
}

void HaloExchange::forward(float *rows, int width_)
{
  communicate(nullptr, rows, width_, [&] { comm->forward_comm(pair, width_); });
}

void HaloExchange::reverse(double *rows, int width_)
{
  communicate(rows, nullptr, width_, [&] { comm->reverse_comm(pair, width_); });
}

void HaloExchange::reverse(float *rows, int width_)
{
  communicate(nullptr, rows, width_, [&] { comm->reverse_comm(pair, width_); });
}

bool HaloExchange::has_others() const { return comm->nprocs > 1; }

void HaloExchange::sum(double *numbers, int n)
{
  if (has_others()) MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, world);
}

int HaloExchange::pack_forward(int n, const int *list, double *buffer) const
{
  for (int k = 0; k < n; ++k, buffer += width) {
    const std::ptrdiff_t from = static_cast<std::ptrdiff_t>(row[list[k]]) * width;
    if (doubles) std::copy_n(doubles + from, width, buffer);
    else std::copy_n(floats + from, width, buffer);
  }
  return n * width;
}

void HaloExchange::unpack_forward(int n, int first, const double *buffer)
{
  for (int k = 0; k < n; ++k, buffer += width) {
    const std::ptrdiff_t to = static_cast<std::ptrdiff_t>(row[first + k]) * width;
    if (doubles) std::copy_n(buffer, width, doubles + to);
    else
      std::transform(buffer, buffer + width, floats + to,
                     [](double value) { return static_cast<float>(value); });
  }
}

int HaloExchange::pack_reverse(int n, int first, double *buffer) const
{
  for (int k = 0; k < n; ++k, buffer += width) {
    const std::ptrdiff_t from = static_cast<std::ptrdiff_t>(row[first + k]) * width;
    if (doubles) std::copy_n(doubles + from, width, buffer);
    else std::copy_n(floats + from, width, buffer);
  }
  return n * width;
}

void HaloExchange::unpack_reverse(int n, const int *list, const double *buffer)
{
  for (int k = 0; k < n; ++k, buffer += width) {
    const std::ptrdiff_t to = static_cast<std::ptrdiff_t>(row[list[k]]) * width;
    for (int c = 0; c < width; ++c)
      if (doubles) doubles[to + c] += buffer[c];
      else floats[to + c] += static_cast<float>(buffer[c]);
  }
}

}    // namespace pair_pwmlff
