// SPDX-License-Identifier: GPL-2.0-or-later

#include "ghost_cutoff.h"

#include "comm.h"
#include "lammps.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace pair_pwmlff {
namespace {

struct Needs {
  double of_user = 0.0;
  double set = -1.0;    // what LAMMPS was told last
  std::map<const GhostCutoff *, double> of_styles;

  void tell(LAMMPS_NS::Comm &comm)
  {
    if (comm.cutghostuser != set) of_user = comm.cutghostuser;    // the user has changed it since
    set = of_user;
    for (const auto &[style, cutoff] : of_styles) set = std::max(set, cutoff);
    comm.cutghostuser = set;
  }
};

std::mutex mutex;    // LAMMPS instances may have a thread each
std::map<const LAMMPS_NS::LAMMPS *, Needs> needs_of;

}    // namespace

void GhostCutoff::need(double cutoff)
{
  const std::lock_guard lock(mutex);
  Needs &needs = needs_of[lmp];
  needs.of_styles[this] = cutoff;
  needs.tell(*lmp->comm);
}

void GhostCutoff::release()
{
  const std::lock_guard lock(mutex);
  const auto found = needs_of.find(lmp);
  if (found == needs_of.end() || found->second.of_styles.erase(this) == 0) return;
  found->second.tell(*lmp->comm);
  if (found->second.of_styles.empty()) needs_of.erase(found);
}

}    // namespace pair_pwmlff
