// SPDX-License-Identifier: GPL-2.0-or-later

// An atomic cluster expansion (ACE) as plain arrays, of pacemaker or of GRACE/FS.
//
// For center i of species a and its neighbors j of species b, r_ij = x_j - x_i, r its length,
// r < rcut of the bond of a and b:
//
//   g_k(r)   the radial base, k = 1 .. nbase                  (formulas.h)
//   R_nl(r)  = sum over k of crad[n,l,k] g_k(r)
//   A_bnlm   = sum over j of species b of R_nl(r) Y_lm(r_ij/r)        with Y_00 = 1
//   rho_p    = sum over rows of c_p Re(product of A)          p = 1 .. ndensity
//              a row of one factor is the sum over j of g_n(r) itself
//   F        = sum over p of w_p f(rho_p, m_p)
//   E_i      = F fcut + core + energy[a]                      (formulas.h)
//
// Y_lm is sqrt(4 pi) times that of math/harmonics.h. GRACE/FS has real harmonics S in their place,
//
//   S_l0 = Y_l0,   S_lm = sqrt(2) (-1)^m Re Y_lm,   S_l-m = sqrt(2) (-1)^m Im Y_lm      m > 0
//
// one bond, A_nlm = sum over all j of chemical[b,n] R_nl S_lm, and a row of one factor is A_n00.
//
// Table. g, R and the core repulsion are cubic Hermite polynomials between nodes, rcut/nbins apart,
// which have their exact values and slopes; forces are derivatives of those. The first bin, where
// the core repulsion is infinite, continues the second.
//
// Grade. B functions are functions whose rows have generalized Clebsch-Gordan coefficients too,
//
//   B_f      = sum over rows of gen_cgs Re(product of A)
//   gamma_i  = largest over k of |sum over v_f inverse[f,k]|
//
// with v_f = B_f, or dF/drho_p B_f at p functions + f where the matrix is as large as that, as it
// never is of GRACE/FS. Up to 1 the center is like those that the inverse is of.
//
// Lengths are in angstrom, energies in eV.
//
// Sources: Drautz 2019, doi:10.1103/PhysRevB.99.014104 (ACE); Lysogorskiy et al. 2021,
// doi:10.1038/s41524-021-00559-9 (this form, ChebExpCos, core repulsion); Bochkarev et al. 2022,
// doi:10.1103/PhysRevMaterials.6.013804 (pacemaker); Lysogorskiy et al. 2023,
// doi:10.1103/PhysRevMaterials.7.043801 (grade); Bochkarev et al. 2024,
// doi:10.1103/PhysRevX.14.021036 (GRACE).

#pragma once

#include <string>
#include <vector>

namespace pwmlff {

enum class AceRadial { cheb_exp_cos, cheb_pow, cheb_linear, sbessel };
enum class AceInner { density, distance, zbl, none };
enum class AceEmbedding { finnis_sinclair, shifted_scaled };

/// Names in files, in the order of the above.
constexpr const char *ACE_RADIALS[] = {"ChebExpCos", "ChebPow", "ChebLinear", "SBessel"};
constexpr const char *ACE_INNERS[] = {"density", "distance", "zbl", "none"};
constexpr const char *ACE_EMBEDDINGS[] = {"FinnisSinclair", "FinnisSinclairShiftedScaled"};

constexpr int ACE_MOST_ELEMENTS = 118, ACE_MOST_DEGREE = 8, ACE_MOST_FUNCTIONS = 200,
              ACE_MOST_RANK = 20, ACE_MOST_BINS = 100000;

/// An ordered pair of species, or all of them.
struct AceBond {
  AceRadial radial = AceRadial::sbessel;
  int nbase = 0;
  double lambda = 0.0, rcut = 0.0, dcut = 0.0;
  double rcut_in = 0.0, dcut_in = 0.0;
  double prehc = 0.0, lambdahc = 0.0;    // of the core repulsion
  std::vector<double> crad;              // [nradial, l_max + 1, nbase of the network]

  bool operator==(const AceBond &) const = default;
};

/// Of the centers of a species.
struct AceSpecies {
  AceEmbedding embedding = AceEmbedding::shifted_scaled;
  std::vector<double> weight, power;             // [ndensity] w, m
  double core_cutoff = 0.0, core_width = 0.0;    // of fcut
  std::vector<int> rank;                         // [functions]
  std::vector<int> rows;                         // [functions] how many rows each has
  std::vector<int> mus, ns, ls;                  // [sum of ranks]; n from 1
  std::vector<int> ms;                           // [sum of rows times rank]
  std::vector<double> coefficients;              // [sum of rows, ndensity] c
  // Of B functions with an active set, else empty.
  std::vector<double> gen_cgs;    // [sum of rows]
  std::vector<double> inverse;    // [size, size], size functions, or ndensity times functions

  int ndensity() const { return static_cast<int>(weight.size()); }
  bool has_grade() const { return !inverse.empty(); }
};

/// Arrays are row by row, their last index is the fastest.
struct AceNetwork {
  std::vector<int> atom_type;         // [nspecies] atomic numbers, distinct
  std::vector<double> energy;         // [nspecies]
  std::vector<AceSpecies> species;    // [nspecies]
  std::vector<AceBond> bonds;         // [nspecies, nspecies], or one
  std::vector<double> chemical;       // [nspecies, nradial] of GRACE/FS; else empty
  AceInner inner = AceInner::density;
  double delta = 0.001;    // bins of a bond: the whole part of rcut/delta
  int nradial = 0, l_max = 0, nbase = 0;

  int nspecies() const { return static_cast<int>(atom_type.size()); }
  bool grace() const { return !chemical.empty(); }
  const AceBond &bond(int a, int b) const
  {
    return bonds.size() == 1 ? bonds[0] : bonds[static_cast<std::size_t>(a) * nspecies() + b];
  }
  double cutoff() const
  {
    double largest = 0.0;
    for (const AceBond &bond : bonds) largest = bond.rcut > largest ? bond.rcut : largest;
    return largest;
  }
};

/// Call work(factors, coefficients) for each row of a species: factors is a vector of {mu, n, l,
/// m}, coefficients [ndensity].
struct AceFactor {
  int mu, n, l, m;
};
template <class Work> void for_ace_rows(const AceSpecies &species, const Work &work)
{
  std::vector<AceFactor> factors;
  const double *c = species.coefficients.data();
  std::size_t first = 0, m = 0;
  for (std::size_t f = 0; f < species.rank.size(); first += species.rank[f++])
    for (int row = 0; row < species.rows[f]; ++row, c += species.ndensity()) {
      factors.clear();
      for (std::size_t t = first; t < first + species.rank[f]; ++t)
        factors.push_back({species.mus[t], species.ns[t], species.ls[t], species.ms[m++]});
      work(factors, c);
    }
}

}    // namespace pwmlff
