// SPDX-License-Identifier: GPL-2.0-or-later

// The steps of a NEP on a device as team kernels (core/team.h); formulas in families/nep/network.h,
// signs in core/evaluation.h. T is the type of all but positions and their differences, ZBL, forces
// and sums over atoms, which are in float64.
//
//   NepFindEdges  candidates -> edges within the cutoffs
//   NepEnergies   edges -> g_n, A, q -> E_i -> dE_i/dq, dE_i/dA
//   NepForces     these -> forces, virials, ZBL
//
// An item is a center and has a team of its own. A chunk of items at a time goes through all steps,
// so the memory for edges does not grow with the system.

#pragma once

#include "energies.h"
#include "find_edges.h"
#include "forces.h"
