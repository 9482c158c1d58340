/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "lammpsplugin.h"
#include "loader.h"

// Called by LAMMPS when it loads pwmlffplugin.so.
extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void *lmp, void *handle,
                                                                         void *regfunc)
{
  lammpsplugin_t plugin{};
  plugin.version = PWMLFF_LAMMPS_VERSION;
  plugin.style = "pair";
  plugin.name = "pwmlff";
  plugin.info = "machine-learned potentials stored as TorchScript";
  plugin.author = "the pair_style pwmlff developers";
  plugin.creator.v1 = pair_pwmlff::create_pair;
  plugin.handle = handle;
  (*reinterpret_cast<lammpsplugin_regfunc *>(regfunc))(&plugin, lmp);
}
