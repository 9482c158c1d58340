// SPDX-License-Identifier: GPL-2.0-or-later

#include "announced_forces.h"

#include "modify.h"
#include "update.h"

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

void AnnouncedForces::add(LAMMPS *lmp, AnnouncedForces *&place)
{
  Modify *const modify = lmp->modify;
  (*modify->fix_map)[STYLE] = create;
  int number = 1;    // hybrid styles can have several
  while (modify->get_fix_by_id(ID + std::to_string(number))) ++number;
  place = static_cast<AnnouncedForces *>(
      modify->add_fix(ID + std::to_string(number) + " all " + STYLE, /*trysuffix=*/0));
  place->place = &place;
}

void AnnouncedForces::remove() { modify->delete_fix(id); }

AnnouncedForces::~AnnouncedForces()
{
  if (place) *place = nullptr;
}

void AnnouncedForces::announce() { announced = update->whichflag != 0; }

bool AnnouncedForces::take() { return std::exchange(announced, false); }

int AnnouncedForces::setmask()
{
  return FixConst::PRE_FORCE | FixConst::MIN_PRE_FORCE | FixConst::PRE_FORCE_RESPA;
}

}    // namespace pair_pwmlff
