/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "announced_forces.h"

#include "modify.h"

#include <string>
#include <utility>

using namespace LAMMPS_NS;

namespace pair_pwmlff {

static constexpr const char *STYLE = "PWMLFF/ANNOUNCED";    // upper case: not for inputs
static constexpr const char *ID = "pwmlff_announced_";

Fix *AnnouncedForces::create(LAMMPS *lmp, int narg, char **arg)
{
  return new AnnouncedForces(lmp, narg, arg);
}

AnnouncedForces *AnnouncedForces::add(LAMMPS *lmp)
{
  Modify *const modify = lmp->modify;
  (*modify->fix_map)[STYLE] = create;
  int number = 1;    // hybrid styles can have several
  while (modify->get_fix_by_id(ID + std::to_string(number))) ++number;
  return static_cast<AnnouncedForces *>(
      modify->add_fix(ID + std::to_string(number) + " all " + STYLE, /*trysuffix=*/0));
}

void AnnouncedForces::remove(LAMMPS *lmp, const AnnouncedForces *fix)
{
  if (!fix || !lmp->modify) return;
  for (int k = 0; k < lmp->modify->nfix; ++k)
    if (lmp->modify->fix[k] == fix) return lmp->modify->delete_fix(k);
}

bool AnnouncedForces::take() { return std::exchange(announced, false); }

int AnnouncedForces::setmask()
{
  return FixConst::PRE_FORCE | FixConst::MIN_PRE_FORCE | FixConst::PRE_FORCE_RESPA;
}

}    // namespace pair_pwmlff
