// SPDX-License-Identifier: GPL-2.0-or-later

#include "coulomb_mesh.h"

#include "math/coulomb.h"

#include "atom.h"
#include "comm.h"
#include "compute.h"
#include "domain.h"
#include "error.h"
#include "fix.h"
#include "force.h"
#include "kspace.h"
#include "modify.h"
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

void set_alpha(KSpace *kspace, double alpha)
{
  tell(kspace, {"gewald", fmt::format("{:.17g}", alpha)});
}

}    // namespace

CoulombMesh::CoulombMesh(LAMMPS *lmp, const Reciprocal &asked, double screening) :
    Pointers(lmp), asked(asked), screening(screening)
{
}

CoulombMesh::~CoulombMesh() noexcept = default;

// Charges of other styles: one array holds the charges of an atom, and one style its mesh.
void CoulombMesh::refuse_others() const
{
  for (const char *const other : {"coul", "/long"})    // of a hybrid style
    if ((force->kspace || atom->q_flag) && force->pair_match(other, 0, 1))
      error->all(
          FLERR,
          "Pair style pwmlff: its charges are those of atoms, which another pair style "
          "(..{}..) takes for its own; leave one of them out, or run without charges of atoms",
          other);
  if (!force->kspace) return;
  const std::string style = force->kspace_style;
  if (style != "pppm" && style != "ewald")
    error->all(FLERR,
               "Pair style pwmlff: kspace_style is {}, expected pppm or ewald without a suffix; "
               "'suffix off' before it leaves that out",
               style);
  if (force->kspace->compute_flag)    // what moves atoms has looked at it before
    error->all(FLERR,
               "Pair style pwmlff: the energy of kspace_style {} is part of that of charges, but "
               "LAMMPS would add it once more; write 'kspace_modify compute no' behind it",
               style);
  const auto refuse = [this](const char *what, const char *found) {
    error->all(FLERR,
               "Pair style pwmlff: {} {} adds the energy of kspace_style, which is part of that of "
               "charges, once more; use the keywords 'kspace pppm' in its place",
               what, found);
  };
  for (const char *const one : {"^gcmc", "^widom", "^atom/swap", "^mol/swap", "^sgcmc", "^gemc",
                                "^charge/regulation", "^neighbor/swap"})
    for (const Fix *const fix : modify->get_fix_by_style(one)) refuse("fix", fix->style);
  for (const Compute *const compute : modify->get_compute_by_style("^born/matrix"))
    refuse("compute", compute->style);
}

void CoulombMesh::tell_screening() const
{
  if (force->kspace) set_alpha(force->kspace, screening);
}

void CoulombMesh::init(Pair *pair, const Ensemble &models)
{
  kspace = nullptr;
  own.reset();
  ready = false;
  const auto charged =
      std::ranges::find_if(models, [](const auto &model) { return model->has_charges(); });
  if (domain->dimension != 3) error->all(FLERR, "Pair style pwmlff: charges need 'dimension 3'");
  refuse_others();
  if (force->kspace) {
    kspace = force->kspace;
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
      std::string accuracy = asked.accuracy > 0.0 ? fmt::format("{:.17g}", asked.accuracy) : "1e-5";
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
  constexpr double grown = 2.0;    // of squares of charges, before the mesh is made anew
  const std::array<double, 15> now = geometry();
  const auto differs = [&](std::size_t begin, std::size_t end, double tolerance) {
    for (std::size_t k = begin; k < end; ++k)
      if (!(std::abs(now[k] - known[k]) <= tolerance)) return 1.0;
    return 0.0;
  };
  // Squares of charges; ranks whose part of the box, and whose box, is another.
  std::array<double, 3> sums = {0.0, differs(9, 15, 1e-9), differs(0, 9, 0.0)};
  for (int i = 0; i < atom->nlocal; ++i) sums[0] += atom->q[i] * atom->q[i];
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), 3, MPI_DOUBLE, MPI_SUM, world);
  if (!ready || sums[0] > grown * known_squares) {
    set_alpha(kspace, screening);
    kspace->init();
    kspace->setup();
    known_squares = sums[0];
  } else {
    kspace->qsum_qsq(0);
    if (sums[1] > 0.0) kspace->reset_grid();
    if (sums[1] > 0.0 || sums[2] > 0.0) kspace->setup();
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
  const double self = 2.0 * pwmlff::COULOMB * screening * std::numbers::inv_sqrtpi;
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
