// SPDX-License-Identifier: GPL-2.0-or-later

// The steps of a MACE model on a device as team kernels (core/team.h); formulas in ../network.h,
// signs in core/evaluation.h. T is the type of all but positions and their differences, ZBL, sums
// of readouts, forces and sums over atoms, which are in float64.
//
//   MaceFindEdges      candidates -> edges within the cutoff
//   MaceShortEdges     radial functions of edges that have no table
//   MaceEdgeSums       edges, features of neighbors -> A, density
//   MaceMix            A -> m, B -> h', h -> what is sent along edges; and the way back of each
//   MaceContract       m -> B, dE/dB -> dE/dm
//   MaceReadout        h' -> E_i and dE/dh'
//   MaceEdgeGradients  dE/dA -> forces, virials, ZBL; derivatives by features of neighbors that are
//                      no centers of the chunk, by atomics
//   MaceEdgeSums, back dE/dA of neighbors -> derivatives by features of centers
//
// Nothing in memory has the size of edges times channels.

#pragma once

#include "contract.h"
#include "edge_gradients.h"
#include "edge_sums.h"
#include "find_edges.h"
#include "mix.h"
#include "readout.h"
