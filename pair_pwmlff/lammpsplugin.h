// SPDX-License-Identifier: GPL-2.0-or-later

// The C interface between LAMMPS and a plugin, as documented on LAMMPS's page "Writing plugins".
// Declared here because installations of LAMMPS do not carry the header.

#ifndef PWMLFF_LAMMPSPLUGIN_H
#define PWMLFF_LAMMPSPLUGIN_H

extern "C" {

using lammpsplugin_factory1 = void *(void *lmp);
using lammpsplugin_factory2 = void *(void *lmp, int narg, char **arg);

struct lammpsplugin_t {
  const char *version;    // release of LAMMPS that the plugin was compiled for, as "22 Jul 2025"
  const char *style;      // category: "pair"
  const char *name;       // name of the style in the input
  const char *info;       // one line for the log
  const char *author;
  union {
    lammpsplugin_factory1 *v1;    // pair, bond, ... styles
    lammpsplugin_factory2 *v2;    // fix, compute, ... styles
  } creator;
  void *handle;
};

using lammpsplugin_regfunc = void(lammpsplugin_t *, void *lmp);
}

#endif
