// SPDX-License-Identifier: GPL-2.0-or-later

#include "evaluation.h"

#include "cpu/instruction_set.h"
#include "device.h"
#include "virial_terms.h"

#include <string>
#include <utility>

namespace pwmlff {

RowSums::RowSums(const Input &input, double *memory) : force(memory)
{
  const std::size_t nrows = input.nrows;
  memory += 3 * nrows;
  if (input.want_atom_virial) atom_virial = memory, memory += 6 * nrows;
  if (input.want_centroid_virial) centroid_virial = memory, memory += 9 * nrows;
  if (input.want_grade) near_square = memory, near_weight = memory + nrows, memory += 2 * nrows;
  if (input.want_born) born = memory;
}

std::size_t RowSums::size(const Input &input)
{
  return static_cast<std::size_t>(input.nrows) *
         (3 + (input.want_atom_virial ? 6 : 0) + (input.want_centroid_virial ? 9 : 0) +
          (input.want_grade ? 2 : 0) + (input.want_born ? 9 : 0));
}

std::array<double, 9> in_order_of_lammps(const double *matrix)
{
  std::array<double, 9> result;
  for (int k = 0; k < 9; ++k) result[k] = matrix[virial_component(k)];
  return result;
}

SumsDiffer::SumsDiffer() :
    std::runtime_error(
        "sums over reciprocal vectors, which are added up over all ranks, differ between ranks: "
        "messages of MPI were damaged, or ranks have other files or boxes")
{
}

void require_box(const Input &input)
{
  if (!input.cell && !input.reciprocal)
    throw std::invalid_argument("a model with charges was given no box, expected one that is "
                                "periodic along all three edges");
  if (!input.exchange && input.nrows > input.ncenters)
    throw std::invalid_argument(
        "a model with charges was given " + std::to_string(input.nrows) + " rows and " +
        std::to_string(input.ncenters) +
        " centers without an exchange between them, expected centers alone");
}

FusedEngine::FusedEngine(std::shared_ptr<Device> device) :
    device_(std::move(device)), processor_(device_ ? device_->name() : instruction_set_name())
{
}

RowExchange::~RowExchange() = default;

ReciprocalSolver::~ReciprocalSolver() = default;

FusedEngine::~FusedEngine() = default;

static std::string text_of(const Excess &excess, const std::string &center,
                           const std::string &species)
{
  return center + " has " + std::to_string(excess.count) + " neighbors of " + species +
         " within the cutoff; the model allows " + std::to_string(excess.limit) +
         "; such a density is outside of what it was trained for: use a model with more slots, or "
         "look for atoms on top of each other";
}

TooManyNeighbors::TooManyNeighbors(const Excess &excess) :
    std::invalid_argument(text_of(excess, "row " + std::to_string(excess.row),
                                  "species " + std::to_string(excess.species))),
    Excess(excess)
{
}

std::string TooManyNeighbors::text(const std::string &center, const std::string &species) const
{
  return text_of(*this, center, species);
}

Centers::Centers(const int *species, int ncenters, const std::vector<bool> &present) :
    first(present.size() + 1, 0)
{
  const int nspecies = static_cast<int>(present.size());
  for (int i = 0; i < ncenters; ++i) {
    const int s = species[i];
    if (s < 0) continue;
    if (s >= nspecies || !present[s])
      throw std::invalid_argument("center " + std::to_string(i) + " is of species " +
                                  std::to_string(s) + ", which is not one of those that take part");
    ++first[s + 1];
  }
  for (int s = 0; s < nspecies; ++s) first[s + 1] += first[s];
  order.resize(first.back());
  std::vector<int> next(first);
  for (int i = 0; i < ncenters; ++i)
    if (species[i] >= 0) order[next[species[i]]++] = i;
}

}    // namespace pwmlff
