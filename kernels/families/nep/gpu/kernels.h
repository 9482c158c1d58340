// SPDX-License-Identifier: GPL-2.0-or-later

// The steps of a NEP on a device as team kernels (core/team.h); formulas in families/nep/network.h,
// signs in core/evaluation.h. T is the type of all but positions and their differences, ZBL, forces
// and sums over atoms, which are in float64.
//
//   NepFindEdges  candidates -> edges within the cutoffs
//   NepEnergies   edges -> g_n, A, q -> E_i -> dE_i/dq, dE_i/dA
//   NepForces     these -> forces, virials, ZBL
//   GatherForces  forces on a center by the energies of its neighbors, in large systems
//
// With charges NepEnergies is in two parts, between which potentials are found (charges.h):
//
//   NepCharges    edges -> g_n, A, q -> E_i, c_i
//   NepSlopes     potentials -> dE/dq, dE/dA
//
// An item is a center and has a team of its own. A chunk of items at a time goes through all steps,
// so the memory for edges does not grow with the system.

#pragma once

#include "charges.h"
#include "energies.h"
#include "find_edges.h"
#include "forces.h"
