// SPDX-License-Identifier: GPL-2.0-or-later

// The steps of a Deep Potential on a device as team kernels (core/team.h); formulas in network.h,
// signs in evaluation.h, splines in spline.h. T is the type of tables, moments, fitting nets and
// what flows back through them; distances, forces and sums are in float64.
//
//   FindEdges     candidates -> edges within the cutoff, environment, place in the table
//   EdgeMoments   edges -> T, with the slots without neighbor in closed form
//   Fit           T -> E_i, dE_i/dT
//   Differentiate dE_i/dT -> dE_i/dG, dE_i/dR~ of each edge
//   Forces        these -> forces, virials
//   GatherForces  forces on a center by the energies of its neighbors, in large systems
//
// An item is a center: `order` lists centers by species. A chunk of items at a time goes through
// all steps, so the memory for edges does not grow with the system.

#pragma once

#include "differentiate.h"
#include "edge_moments.h"
#include "find_edges.h"
#include "fit.h"
#include "forces.h"
