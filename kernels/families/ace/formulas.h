// SPDX-License-Identifier: GPL-2.0-or-later

// Radial base, core repulsion and energy of an atom of an ACE, for the plain evaluation and for
// what engines tabulate. With T_k Chebyshev polynomials, y = r/rcut, all 0 from rcut on, g_k is
//
//   ChebExpCos  x = 1 - 2 (exp(-lambda y) - e)/(1 - e), e = exp(-lambda); c(y), then
//               c(y) (1 - T_k-1(x))/2, and beyond rcut - dcut c((r - rcut + dcut)/dcut) besides,
//               with c(t) = (1 + cos(pi t))/2
//   ChebPow     x = 1 - 2 (1 - y)^lambda; (1 - T_k(x))/2
//   ChebLinear  x = 1 - y;                (1 - T_k(x))/2
//   SBessel     (s_k + sqrt(e_k/D_k-1) g_k-1)/sqrt(D_k) with D_k = 1 - e_k/D_k-1, D_1 = 1,
//               e_k = (k-1)^2 (k+1)^2/(4 k^4 + 1), and
//               s_k = (-1)^(k-1) sqrt(2) pi rcut^(-3/2) k (k+1)/sqrt(k^2 + (k+1)^2)
//                     (sinc(k pi y) + sinc((k+1) pi y))
//
// and 0 for r <= rcut_in - dcut_in, except with inner cutoffs zbl. With inner cutoffs by distance,
// g_k (1 - P(r; rcut_in, dcut_in)) takes the place of g_k. P(r; c, d) is 1 up to c - d, 0 from c
// on, and 1/2 + 15/4 (x/4 - x^3/6 + x^5/20), x = 1 - 2 (1 + (r - c)/d), between.
//
// The core repulsion of a pair is
//
//   density   |prehc| exp(-q)/r c(y), q = |lambdahc| r^2, where q < 50
//   distance  the same times P(r; rcut_in, dcut_in)
//   zbl       prehc K/2 Z_a Z_b (phi(r/s)/r + S(r)) P(r; rcut, dcut), phi and s those of
//             math/zbl.h, S = S_0 + A/3 u^3 + B/4 u^4 with u = max(r - rcut + dcut, 0), by which
//             the sum and its first two derivatives are 0 at rcut
//
// and core the sum over neighbors. fcut is P(core; core_cutoff, core_width). With zbl it is P(d -
// t; d, d) in its place, where t is the least r - (rcut_in - dcut_in) of all neighbors, if less
// than the largest cutoff, and d the dcut_in of that neighbor; and core (1 - fcut) replaces core.
//
// Embedding functions f, with m = 1 the identity:
//
//   FinnisSinclair               sign(rho) ((1 - G) |rho|^m + k G |rho|), w = 10^6, k = w^(1-m),
//                                G = exp(-(w |rho|)^3), 0 where the exponent passes 30
//   FinnisSinclairShiftedScaled  sign(rho) ((X + |rho|)^m - Y), q = 1/m, X = q^(q/(1-q)) e^-|rho|,
//                                Y = q^(1/(1-q)) e^-|rho|

#pragma once

#include "../../core/export.h"
#include "network.h"

#include <vector>

namespace pwmlff {

/// Functions of a bond at a distance: the radial base, and the core repulsion of a pair.
struct AceFunctions {
  std::vector<double> value, slope;    // [nbase of the bond + 1]
};

/// Bins of a bond: at least 2.
int ace_bins(const AceNetwork &network, const AceBond &bond);

/// Exact values at a distance.
/// @param a, b  the species, for the core repulsion; it is left out where a is below 0
void ace_exact(const AceNetwork &network, const AceBond &bond, int a, int b, double r,
               AceFunctions &result);

/// Values between the nodes of the table.
void ace_between_nodes(const AceNetwork &network, const AceBond &bond, int a, int b, double r,
                       AceFunctions &result);

/// Whether pairs of species have a core repulsion.
bool ace_has_core(const AceNetwork &network, int a, int b);

/// Coefficients of c0 + u c1 + u^2 c2 + u^3 c3, u from 0 to 1, from values and slopes by u.
inline void ace_hermite(double f0, double d0, double f1, double d1, double *c)
{
  c[0] = f0;
  c[1] = d0;
  c[2] = 3.0 * (f1 - f0) - d1 - 2.0 * d0;
  c[3] = -2.0 * (f1 - f0) + d1 + d0;
}

/// What an atom's neighborhood is to its energy.
struct AceSurroundings {
  double core = 0.0;                            // sum of core repulsions
  double nearest = 1e300, nearest_width = 0;    // t and d
};

/// An atom's energy and its derivatives.
struct AceEnergy {
  double energy, by_core, by_nearest;
};

/// @param rho     [ndensity]
/// @param by_rho  [ndensity]
PWMLFF_KERNELS_API AceEnergy ace_energy(const AceNetwork &network, int species, const double *rho,
                                        const AceSurroundings &around, double *by_rho);

}    // namespace pwmlff
