// SPDX-License-Identifier: GPL-2.0-or-later

#include "coulomb_mesh.h"

#include "math/coulomb.h"

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "error.h"
#include "force.h"
#include "kspace.h"
#include "pair.h"
#include "utils.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

// Beyond it, each atom more costs the sum over vectors more than the network (docs/charges.md).
constexpr bigint MANY_ATOMS = 20000;

void tell(KSpace *kspace, std::vector<std::string> words)
{
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  kspace->modify_params(static_cast<int>(arguments.size()), arguments.data());
}

}    // namespace

CoulombMesh::~CoulombMesh() noexcept = default;

// Charges of other styles, that LAMMPS's kspace style would have to know, too.
void CoulombMesh::refuse_others() const
{
  for (const char *const other : {"coul", "/long"})    // of a hybrid style
    if (force->pair_match(other, 0, 1))
      error->all(
          FLERR,
          "Pair style pwmlff: its charges and those of another pair style (..{}..) both want "
          "the kspace style; leave one of them out",
          other);
  for (const char *const other : {"/omp", "/kk", "/gpu", "/intel", "/electrode", "/stagger"})
    if (std::string(force->kspace_style).ends_with(other))
      error->all(FLERR,
                 "Pair style pwmlff: kspace_style is {}, expected pppm, pppm/cg or ewald; write "
                 "'suffix off' before it",
                 force->kspace_style);
  if (!(force->kspace->pppmflag || force->kspace->ewaldflag) || force->kspace->dispersionflag ||
      force->kspace->tip4pflag || force->kspace->dipoleflag)
    error->all(FLERR, "Pair style pwmlff: kspace_style is {}, expected pppm, pppm/cg or ewald",
               force->kspace_style);
}

void CoulombMesh::init(Pair *pair, const Ensemble &models)
{
  kspace = nullptr;
  ready = false;
  const auto charged =
      std::ranges::find_if(models, [](const auto &model) { return model->has_charges(); });
  if (charged == models.end()) return;
  screening = (*charged)->info().screening;
  if (domain->dimension != 3) error->all(FLERR, "Pair style pwmlff: charges need 'dimension 3'");
  if (force->kspace) {
    refuse_others();
    kspace = force->kspace;
    if (kspace->compute_flag)    // what moves atoms has looked at it before
      error->all(FLERR,
                 "Pair style pwmlff: the energy of kspace_style {} is part of that of charges, but "
                 "LAMMPS would add it once more; write 'kspace_modify compute no' behind it",
                 force->kspace_style);
  } else if (asked.pppm) {
    if (!atom->q_flag || !force->kspace_map->contains("pppm")) {
      if (comm->me == 0)
        error->warning(
            FLERR,
            "Pair style pwmlff: kspace pppm needs {}; Ewald's sum is taken in its place, "
            "which is exact, and slow for many atoms",
            atom->q_flag ? "a LAMMPS with package KSPACE" : "'atom_style charge'");
    } else {
      int suffix = 0;
      own.reset(force->new_kspace("pppm", 0, suffix));
      std::string accuracy = fmt::format("{}", asked.accuracy);
      char *argument = accuracy.data();
      own->settings(1, &argument);
      tell(own.get(), {"order", "7"});    // the largest: coarser meshes are faster here
      if (asked.mesh[0] > 0)
        tell(own.get(), {"mesh", std::to_string(asked.mesh[0]), std::to_string(asked.mesh[1]),
                         std::to_string(asked.mesh[2])});
      kspace = own.get();
    }
  }
  if (!kspace && domain->nonperiodic)
    error->all(FLERR,
               "Pair style pwmlff: model '{}' has charges, whose energy is that of a crystal, but "
               "the box is not periodic in all directions; use 'boundary p p p', with vacuum where "
               "there is a surface, or kspace_style pppm with 'kspace_modify slab'",
               (*charged)->info().file);
  if (!kspace) return;
  for (const auto &model : models)
    if (model->has_charges() && model->info().screening != screening)
      error->all(FLERR,
                 "Pair style pwmlff: the charges of models '{}' and '{}' are screened differently "
                 "({:g} and {:g} 1/angstrom), which one mesh cannot serve; use 'kspace ewald'",
                 (*charged)->info().file, model->info().file, screening, model->info().screening);
  for (Pair *const one : {pair, force->pair}) one->ewaldflag = one->pppmflag = 1;
}

std::string CoulombMesh::description() const
{
  if (kspace)
    return fmt::format("  charges: reciprocal space by kspace_style {}\n",
                       own ? "pppm" : force->kspace_style);
  std::string text = "  charges: reciprocal space by Ewald's sum, exact\n";
  if (atom->natoms > MANY_ATOMS)
    text += "  for so many atoms 'kspace pppm' in the line pair_style would be faster\n";
  return text;
}

// The box, and the part of it that is this rank's.
std::array<double, 15> CoulombMesh::geometry() const
{
  std::array<double, 15> numbers{};
  std::copy_n(domain->h, 6, numbers.begin());
  for (int d = 0; d < 3; ++d) {
    numbers[6 + d] = domain->boxlo[d];
    const bool tilted = domain->triclinic != 0;
    numbers[9 + d] =
        tilted ? domain->sublo_lamda[d] : (domain->sublo[d] - domain->boxlo[d]) / domain->prd[d];
    numbers[12 + d] =
        tilted ? domain->subhi_lamda[d] : (domain->subhi[d] - domain->boxlo[d]) / domain->prd[d];
  }
  return numbers;
}

// With charges in atom->q, of which it takes the size of its mesh.
void CoulombMesh::prepare()
{
  const std::array<double, 15> now = geometry();
  const auto differs = [&](std::size_t begin, std::size_t end, double tolerance) {
    bool found = false;
    for (std::size_t k = begin; k < end; ++k)
      found = found || !(std::abs(now[k] - known[k]) <= tolerance);
    int all = found;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MAX, world);
    return all != 0;
  };
  if (!ready) {
    tell(kspace, {"gewald", fmt::format("{:.17g}", screening)});
    kspace->init();
    kspace->setup();
  } else {
    kspace->qsum_qsq(0);
    if (differs(9, 15, 1e-9)) kspace->reset_grid();
    else if (differs(0, 9, 0.0)) kspace->setup();
  }
  ready = true;
  known = now;
}

void CoulombMesh::solve(const pwmlff::Input &input, const double *charge, double *potential,
                        double *field, double *virial, double *atom_virial)
{
  constexpr double least = 1e-10;    // a potential is an energy by a charge
  const int nlocal = atom->nlocal, ncenters = input.ncenters;
  double **const f = atom->f;
  charges.assign(atom->q, atom->q + nlocal);
  forces.resize(3 * static_cast<std::size_t>(nlocal));
  std::fill_n(atom->q, nlocal, 0.0);
  if (nlocal > 0) {
    std::copy_n(f[0], forces.size(), forces.begin());
    std::fill_n(f[0], forces.size(), 0.0);
  }
  for (int row = 0; row < ncenters; ++row)
    if (input.species[row] >= 0)
      atom->q[atom_of_row[row]] = std::abs(charge[row]) < least ? least : charge[row];
  prepare();
  constexpr int energies = 3;                            // ENERGY_GLOBAL and ENERGY_ATOM of LAMMPS
  kspace->compute(energies, atom_virial ? 1 + 4 : 1);    // VIRIAL_PAIR, VIRIAL_ATOM
  // In eV; LAMMPS may have other units, and another constant in them.
  const double unit = pwmlff::COULOMB / force->qqrd2e;
  const double self = 2.0 * pwmlff::COULOMB * screening / std::sqrt(std::numbers::pi);
  for (int row = 0; row < ncenters; ++row) {
    const int i = atom_of_row[row];
    const double q = atom->q[i];
    potential[row] = q == 0.0 ? 0.0 : 2.0 * unit * kspace->eatom[i] / q + self * q;
    for (int c = 0; c < 3; ++c) field[3 * row + c] = q == 0.0 ? 0.0 : unit * f[i][c] / q;
    for (int c = 0; atom_virial && c < 6; ++c)
      atom_virial[6 * row + c] = unit * kspace->vatom[i][c];
  }
  for (int c = 0; c < 6; ++c) virial[c] = unit * kspace->virial[c] / comm->nprocs;
  // None of it is LAMMPS's to add once more.
  kspace->energy = 0.0;
  std::fill_n(kspace->virial, 6, 0.0);
  std::copy(charges.begin(), charges.end(), atom->q);
  if (nlocal > 0) std::copy(forces.begin(), forces.end(), f[0]);
}

}    // namespace pair_pwmlff
