/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "lammpsplugin.h"
#include "loader.h"

namespace {

/// Registers the style under the name in the input.
template <const char *name> void add(void *lmp, void *handle, void *regfunc)
{
  lammpsplugin_t plugin{};
  plugin.version = PWMLFF_LAMMPS_VERSION;
  plugin.style = "pair";
  plugin.name = name;
  plugin.info = "machine-learned potentials stored as TorchScript";
  plugin.author = "the pair_style pwmlff developers";
  plugin.creator.v1 = [](void *instance) { return pair_pwmlff::create_pair(instance, name); };
  plugin.handle = handle;
  (*reinterpret_cast<lammpsplugin_regfunc *>(regfunc))(&plugin, lmp);
}

constexpr char PWMLFF[] = "pwmlff", MATPL[] = "matpl", MATPL_DP[] = "matpl/dp";

}    // namespace

// Called by LAMMPS when it loads pwmlffplugin.so.
extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void *lmp, void *handle,
                                                                         void *regfunc)
{
  add<PWMLFF>(lmp, handle, regfunc);
  add<MATPL>(lmp, handle, regfunc);    // as the inputs of MatPL's users say
  add<MATPL_DP>(lmp, handle, regfunc);
}
