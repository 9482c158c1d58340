// SPDX-License-Identifier: GPL-2.0-or-later

// What the LAMMPS and the MPI of this process are, asked through C interfaces alone.
//
// The classes of LAMMPS change from release to release and from update to update, and the handles
// of MPI are numbers in one family and pointers in the other. Code that was compiled for another of
// them crashes at its first call, so this asks before anything of either is touched.

#ifndef PWMLFF_HOST_H
#define PWMLFF_HOST_H

#include <string>

namespace pair_pwmlff {

/// What differs between this process and what the plugin was compiled for, in words; empty where
/// nothing does. What the process cannot be asked (its program does not export the function) is not
/// a difference.
std::string difference_from_host(void *lmp);

/// Write a line to stderr, on the first rank where the ranks can be told apart, else on all.
void say_once(void *lmp, const std::string &text);

}    // namespace pair_pwmlff

#endif
