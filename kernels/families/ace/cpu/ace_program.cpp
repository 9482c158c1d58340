// SPDX-License-Identifier: GPL-2.0-or-later

// Evaluation of an ACE for one instruction set. A lane is a center throughout: as many centers of a
// species as a vector has lanes go through all steps together, each with its k-th neighbor of a
// species at a time, so nothing is summed over lanes. Centers with fewer neighbors have edges in
// the bin of the table that is 0.

#include "ace_program.h"

#include "../../../core/virial_terms.h"
#include "../../../math/sphere.h"
#include "products.h"
#include "radial.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA {
namespace ace {
namespace {

template <class T> void copy(Buffer<T> &to, const std::vector<double> &from)
{
  to.reserve(from.size());
  for (std::size_t k = 0; k < from.size(); ++k) to[k] = static_cast<T>(from[k]);
}

template <class T> struct Table {
  explicit Table(const AceTable &table) :
      bins(table.bins), nfunctions(table.nfunctions), scale(table.scale)
  {
    copy(coefficients, table.coefficients);
  }

  const int bins, nfunctions;
  const double scale;
  Buffer<T> coefficients;    // [bins + 1, nfunctions, 4]
};

/// Neighbors of a species of a center of another.
template <class T> struct Bond {
  Bond(const AceNeighborPlan &plan, const AceBond &bond, const Table<T> &table,
       const AceTable &core) :
      plan(plan),
      table(table),
      rcut(bond.rcut),
      inner(bond.rcut_in - bond.dcut_in),
      inner_width(bond.dcut_in)
  {
    copy(crad, plan.crad);
    if (core.bins == 0) return;
    this->core = std::make_unique<const Table<double>>(core);
    for (core_end = core.bins; core_end > 0 && ends(&core.coefficients[4 * core_end]);) --core_end;
    ++core_end;
  }

  static bool ends(const double *c) { return c[0] == 0.0 && c[1] == 0.0 && c[2] == 0.0; }

  const AceNeighborPlan &plan;
  const Table<T> &table;
  std::unique_ptr<const Table<double>> core;    // or null
  int core_end = 0;                             // from this bin on it is 0
  const double rcut, inner, inner_width;
  Buffer<T> crad;    // [nbase, nfunctions]
};

template <class T> struct Species {
  explicit Species(const AceSpeciesPlan &plan) : products(plan) {}

  Products products;
  std::vector<std::unique_ptr<const Bond<T>>> bonds;    // of species that take part
};

template <class T> struct Packed {
  explicit Packed(const AceEngineNetwork &source) : source(source)
  {
    const AceNetwork &network = source.network;
    const int n = network.nspecies();
    for (const AceTable &table : source.tables)
      tables.push_back(std::make_unique<const Table<T>>(table));
    for (int a = 0; a < n; ++a) {
      species.emplace_back();
      if (!source.present[a]) continue;
      species.back() = std::make_unique<Species<T>>(source.plans[a]);
      for (const AceNeighborPlan &plan : source.plans[a].neighbors) {
        const int pair = a * n + plan.species;
        species.back()->bonds.push_back(
            std::make_unique<const Bond<T>>(plan, network.bond(a, plan.species),
                                            *tables[source.table_of[pair]], source.core[pair]));
        has_core |= source.core[pair].bins > 0;
      }
    }
    has_nearest = network.inner == AceInner::zbl;
  }

  const AceEngineNetwork &source;
  std::vector<std::unique_ptr<const Table<T>>> tables;
  std::vector<std::unique_ptr<Species<T>>> species;    // null for those that take no part
  bool has_core = false, has_nearest = false;
};

/// The edges of a block: [edge, lane] each.
template <class T> struct Edges {
  void reserve(std::size_t n)
  {
    for (auto *array : {&x, &y, &z, &by_r}) array->reserve(n);
    for (auto *array : {&ux, &uy, &uz, &inverse, &u}) array->reserve(n);
    row.reserve(n);
    bin.reserve(n);
  }

  Buffer<double> x, y, z;              // r_ij
  Buffer<double> by_r;                 // slope of the core repulsion, then of what depends on it
  Buffer<T> ux, uy, uz, inverse, u;    // direction, 1/r, place in the bin
  Buffer<int> row, bin;                // of the neighbor, -1 for none
};

template <class T> class AceWorker : public Worker {
  static constexpr int block = lanes<T>, parts = block / width, tile = 4;

 public:
  explicit AceWorker(const Packed<T> &model) : model(model) {}

  void run(int, const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
           PartialSums &sums) override
  {
    for (int k = 0; k < nblocks; ++k) {
      set_species(blocks[k].species);
      const int *const centers = plan.order + blocks[k].first;
      find_edges(*plan.input, centers, blocks[k].count);
      add_up();
      find_energies(centers, blocks[k].count, plan, sums);
      pull_back(centers, blocks[k].count, sums);
    }
  }

 private:
  struct Run {
    int first, count;    // edges of a block with one species of neighbors
  };

  void set_species(int k)
  {
    which = k;
    species = model.species[k].get();
    const Products &products = species->products;
    const std::size_t nvalues = static_cast<std::size_t>(products.nvalues) * width;
    values.reserve(parts * nvalues);
    slopes.reserve(nvalues);
    edge_slopes.reserve(static_cast<std::size_t>(products.nmoments) * block);
    rho.reserve(static_cast<std::size_t>(products.ndensity) * width * 2);
    functions_of_b.reserve(static_cast<std::size_t>(products.nfunctions) * (1 + products.ndensity) *
                           width);
    runs.reserve(species->bonds.size());
    int most_base = 0;
    for (const auto &bond : species->bonds)
      most_base = most_base > bond->table.nfunctions ? most_base : bond->table.nfunctions;
    base.reserve(static_cast<std::size_t>(2) * most_base * block);
    constexpr std::size_t most = nep::harmonics_up_to(ACE_MOST_DEGREE);
    harmonics.reserve(tile * most * block);
    by_harmonic.reserve(most * block);
  }

  void find_edges(const Input &input, const int *centers, int ncenters)
  {
    const int nspecies = model.source.network.nspecies();
    const auto candidates = [&](int lane, int s) {
      return input.first + static_cast<std::ptrdiff_t>(centers[lane]) * nspecies + s;
    };
    std::size_t room = 1, records = 0;
    for (const auto &bond : species->bonds) {
      int most = 0;
      for (int l = 0; l < ncenters; ++l) {
        const int *const first = candidates(l, bond->plan.species);
        most = most > first[1] - first[0] ? most : first[1] - first[0];
      }
      room += most;
      records += static_cast<std::size_t>(most) * bond->plan.nfunctions;
    }
    edges.reserve(room * block);
    functions.reserve(2 * records * block);
    for (int l = 0; l < block; ++l) around[l] = {};

    int end = 0;
    for (std::size_t b = 0; b < species->bonds.size(); ++b) {
      const Bond<T> &bond = *species->bonds[b];
      const double square = bond.rcut * bond.rcut;
      int count[block] = {}, most = 0;
      for (int l = 0; l < ncenters; ++l) {
        const int *const first = candidates(l, bond.plan.species);
        const double *const xi = input.x + 3 * static_cast<std::ptrdiff_t>(centers[l]);
        const double x0 = xi[0], x1 = xi[1], x2 = xi[2];
        int n = end * block + l;
        for (int k = first[0]; k < first[1];
             ++k) {    // no branches: they would often be mispredicted
          const int j = input.candidate[k];
          const double *const xj = input.x + 3 * static_cast<std::ptrdiff_t>(j);
          const double d0 = xj[0] - x0, d1 = xj[1] - x1, d2 = xj[2] - x2;
          edges.x[n] = d0, edges.y[n] = d1, edges.z[n] = d2;
          edges.row[n] = j;
          n += d0 * d0 + d1 * d1 + d2 * d2 < square ? block : 0;
        }
        count[l] = (n - l) / block - end;
        most = most > count[l] ? most : count[l];
      }
      for (int l = 0; l < block; ++l)
        for (int k = count[l]; k < most; ++k) {
          const int n = (end + k) * block + l;
          edges.x[n] = 2.0 * bond.rcut;    // in the last bin
          edges.y[n] = edges.z[n] = 0.0;
          edges.row[n] = -1;
        }
      runs[b] = {end, most};
      locate(bond, runs[b]);
      if (model.has_core) add_core(bond, runs[b]);
      if (model.has_nearest) find_nearest(bond, runs[b]);
      end += most;
    }
  }

  void locate(const Bond<T> &bond, const Run &run)
  {
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(run.first) * block;
    const double *__restrict const x = edges.x.get() + first,
                                   *__restrict const y = edges.y.get() + first,
                                   *__restrict const z = edges.z.get() + first;
    T *__restrict const ux = edges.ux.get() + first, *__restrict const uy = edges.uy.get() + first,
                        *__restrict const uz = edges.uz.get() + first,
                        *__restrict const per_r = edges.inverse.get() + first,
                        *__restrict const u = edges.u.get() + first;
    int *__restrict const bins = edges.bin.get() + first;
    const double scale = bond.table.scale;
    const int last = bond.table.bins;
    for (int k = 0; k < run.count * block; ++k) {
      const double r = __builtin_sqrt(x[k] * x[k] + y[k] * y[k] + z[k] * z[k]), inverse = 1.0 / r;
      const double place = r * scale;
      int bin = static_cast<int>(place);
      bin = bin < 1 ? 1 : bin;
      bin = bin > last ? last : bin;
      bins[k] = bin;
      u[k] = static_cast<T>(place - bin);
      ux[k] = static_cast<T>(x[k] * inverse);
      uy[k] = static_cast<T>(y[k] * inverse);
      uz[k] = static_cast<T>(z[k] * inverse);
      per_r[k] = static_cast<T>(inverse);
    }
  }

  double distance(int k) const
  {
    const double x = edges.x[k], y = edges.y[k], z = edges.z[k];
    return __builtin_sqrt(x * x + y * y + z * z);
  }

  void add_core(const Bond<T> &bond, const Run &run)
  {
    for (int k = run.first * block; k < (run.first + run.count) * block; ++k) {
      edges.by_r[k] = 0.0;
      if (!bond.core || edges.bin[k] >= bond.core_end) continue;
      const double *const c = &bond.core->coefficients[static_cast<std::size_t>(edges.bin[k]) * 4];
      const double u = distance(k) * bond.core->scale - edges.bin[k];
      around[k % block].core += c[0] + u * (c[1] + u * (c[2] + u * c[3]));
      edges.by_r[k] = (c[1] + u * (2.0 * c[2] + 3.0 * u * c[3])) * bond.core->scale;
    }
  }

  void find_nearest(const Bond<T> &bond, const Run &run)
  {
    for (int k = run.first * block; k < (run.first + run.count) * block; ++k) {
      const double t = distance(k) - bond.inner;
      if (edges.row[k] < 0 || !(t < around[k % block].nearest)) continue;
      around[k % block].nearest = t;
      around[k % block].nearest_width = bond.inner_width;
      nearest[k % block] = k;
    }
  }

  T *vector(Buffer<T> &buffer, int k)
  {
    return buffer.get() + static_cast<std::ptrdiff_t>(k) * block;
  }

  /// Radial functions of edge e, to the place where the way back finds them.
  void evaluate_radial(const Bond<T> &bond, int e, T *out)
  {
    const Table<T> &table = bond.table;
    const T *rows[block];
    for (int l = 0; l < block; ++l)
      rows[l] = table.coefficients.get() +
                static_cast<std::ptrdiff_t>(edges.bin[e * block + l]) * table.nfunctions * 4;
    const Vec<T> u = load(vector(edges.u, e)), twice = u + u, thrice = T(3) * u * u;
    const T scale = static_cast<T>(table.scale);
    T *g = base.get();
    for (int k = 0; k < table.nfunctions; ++k, g += 2 * block) {
      Vec<T> c0, c1, c2, c3;
      load_four<T>(rows, 4 * k, c0, c1, c2, c3);
      store(g, c0 + u * (c1 + u * (c2 + u * c3)));
      store(g + block, (c1 + twice * c2 + thrice * c3) * scale);
    }
    contract<T>(base.get(), table.nfunctions, bond.crad.get(), bond.plan.nfunctions, out);
  }

  void evaluate_harmonics(int degree, int e, T *out)
  {
    if (degree == 0) return;
    const Vec<T> u[3] = {load(vector(edges.ux, e)), load(vector(edges.uy, e)),
                         load(vector(edges.uz, e))};
    nep::harmonics_of_degree<T>(degree, u, out);
  }

  /// Add to a moment, of which float64 has the sums.
  void add_moment(int k, Vec<T> v)
  {
    double *p = values.get() + static_cast<std::ptrdiff_t>(k) * width;
    if constexpr (parts == 1) {
      store(p, load(p) + v);
    } else {
      typedef T Half __attribute__((vector_size(sizeof(Vec<T>) / 2), may_alias));
      Half half[2];
      __builtin_memcpy(&half, &v, sizeof(half));
      store(p, load(p) + __builtin_convertvector(half[0], Vec<double>));
      p += static_cast<std::ptrdiff_t>(species->products.nvalues) * width;
      store(p, load(p) + __builtin_convertvector(half[1], Vec<double>));
    }
  }

  void add_up()
  {
    const Products &products = species->products;
    for (int part = 0; part < parts; ++part) {
      double *const first = values_of(part);
      for (int k = 0; k < products.nmoments * width; ++k) first[k] = 0.0;
    }
    T *out = functions.get();
    for (std::size_t b = 0; b < species->bonds.size(); ++b) {
      const Bond<T> &bond = *species->bonds[b];
      int e = runs[b].first;
      const int end = e + runs[b].count;
      for (; e + tile <= end; e += tile) add_tile<tile>(bond, e, out);
      for (; e < end; ++e) add_tile<1>(bond, e, out);
    }
  }

  template <int J> void add_tile(const Bond<T> &bond, int e, T *&out)
  {
    constexpr int most = nep::harmonics_up_to(ACE_MOST_DEGREE) * block;
    const T *value[J], *y[J], *of_degree[J];
    for (int j = 0; j < J;
         ++j, out += static_cast<std::ptrdiff_t>(2) * bond.plan.nfunctions * block) {
      evaluate_radial(bond, e + j, out);
      evaluate_harmonics(bond.plan.degree, e + j, harmonics.get() + j * most);
      value[j] = out;
      y[j] = harmonics.get() + j * most;
    }
    for (const AceGroup &group : bond.plan.groups) {
      const int l = group.degree;
      for (int j = 0; j < J; ++j) of_degree[j] = y[j] + (l > 0 ? (l * l - 1) * block : 0);
      with_degree(l, [&]<int degree>() {
        add_moments<T, degree, J>(group.nfunctions, value, of_degree,
                                  [&](int k, Vec<T> v) { add_moment(group.first + k, v); });
      });
      for (int j = 0; j < J; ++j)
        value[j] += static_cast<std::ptrdiff_t>(2) * group.nfunctions * block;
    }
  }

  double *values_of(int part)
  {
    return values.get() + static_cast<std::ptrdiff_t>(part) * species->products.nvalues * width;
  }

  /// The energy of a lane with these densities; slopes by them come behind them.
  AceEnergy energy_of(int l, const AceSurroundings &surroundings)
  {
    const int ndensity = species->products.ndensity;
    double in[ACE_MOST_FUNCTIONS], out[ACE_MOST_FUNCTIONS];
    for (int p = 0; p < ndensity; ++p) in[p] = rho[p * width + l];
    const AceEnergy energy = ace_energy(model.source.network, which, in, surroundings, out);
    for (int p = 0; p < ndensity; ++p) rho[(ndensity + p) * width + l] = out[p];
    return energy;
  }

  /// Energies of centers, perhaps grades, and slopes by their moments.
  void find_energies(const int *centers, int ncenters, const BlockPlan &plan, PartialSums &sums)
  {
    const Products &products = species->products;
    for (int part = 0; part < parts; ++part) {
      double *const own = values_of(part);
      products.forward(own, rho.get());
      for (int l = 0; l < width; ++l) {
        const int lane = part * width + l;
        const AceEnergy energy = energy_of(l, around[lane]);
        if (lane < ncenters) plan.atom_energy[centers[lane]] = energy.energy;
        by_core[lane] = energy.by_core;
        by_nearest[lane] = energy.by_nearest;
      }
      products.backward(own, &rho[products.ndensity * width], slopes.get());
      for (int k = 0; k < products.nmoments; ++k)
        for (int l = 0; l < width; ++l)
          edge_slopes[k * block + part * width + l] = static_cast<T>(slopes[k * width + l]);
      if (!plan.grade || part * width >= ncenters) continue;
      alignas(64) double gamma[width];
      find_grades(own, gamma);
      for (int l = 0; l < width && part * width + l < ncenters; ++l) {
        const int i = centers[part * width + l];
        // Each center is alone: the mean that neighbors take part in (RowSums) is its grade itself.
        plan.grade[i] = gamma[l];
        sums.near_square[i] += gamma[l] * gamma[l];
        sums.near_weight[i] = 1.0;
      }
    }
  }

  /// Extrapolation grades of the lanes of a part, of which densities and products are there.
  void find_grades(const double *own, double *gamma)
  {
    const Products &products = species->products;
    const std::vector<double> &inverse = model.source.network.species[which].inverse;
    const int ndensity = products.ndensity, nfunctions = products.nfunctions;
    double *const b = functions_of_b.get(), *v = b;
    int size = nfunctions;
    for (int k = 0; k < nfunctions * width; ++k) b[k] = 0.0;
    products.project(own, b);
    if (inverse.size() > static_cast<std::size_t>(nfunctions) * nfunctions) {
      for (int l = 0; l < width; ++l) energy_of(l, {});    // without a core
      v += nfunctions * width;
      size *= ndensity;
      for (int p = 0; p < ndensity; ++p)
        for (int f = 0; f < nfunctions; ++f)
          store(v + (p * nfunctions + f) * width,
                load(&rho[(ndensity + p) * width]) * load(b + f * width));
    }
    store(gamma, largest_projection(v, size, inverse.data()));
  }

  void pull_back(const int *centers, int ncenters, PartialSums &sums)
  {
    alignas(64) double totals[12][block] = {};    // force on the centers, virial
    const T *record = functions.get();
    if (model.has_nearest)
      for (int l = 0; l < ncenters; ++l)
        if (by_nearest[l] != 0.0) scale_core(l);
    for (std::size_t b = 0; b < species->bonds.size(); ++b) {
      const Bond<T> &bond = *species->bonds[b];
      for (int k = 0; k < nep::harmonics_up_to(bond.plan.degree) * block; ++k) by_harmonic[k] = 0;
      for (int e = runs[b].first; e < runs[b].first + runs[b].count; ++e) {
        alignas(64) double gradient[3][block];
        pull_back_edge(bond, e, record, gradient);
        record += static_cast<std::ptrdiff_t>(2) * bond.plan.nfunctions * block;
        if (bond.core) add_core_gradient(e, gradient);
        add_totals(e, gradient, totals);
        spread(centers, e, gradient, sums);
      }
    }
    for (int l = 0; l < ncenters; ++l) {
      double *const f = sums.force + 3 * static_cast<std::ptrdiff_t>(centers[l]);
      for (int c = 0; c < 3; ++c) f[c] += totals[c][l];
      for (int c = 0; c < 9; ++c) sums.virial[c] += totals[3 + c][l];
    }
  }

  /// dE/dr_ij of edge e.
  void pull_back_edge(const Bond<T> &bond, int e, const T *value, double (*gradient)[block])
  {
    const int degree = bond.plan.degree;
    T *const y = harmonics.get();
    evaluate_harmonics(degree, e, y);
    Vec<T> by_r{}, across[3] = {};
    for (const AceGroup &group : bond.plan.groups) {
      const int l = group.degree, first = l > 0 ? (l * l - 1) * block : 0;
      with_degree(l, [&]<int d>() {
        by_r += back_to_edge<T, d>(group.nfunctions, vector(edge_slopes, group.first), value,
                                   y + first, by_harmonic.get() + first);
      });
      value += static_cast<std::ptrdiff_t>(2) * group.nfunctions * block;
    }
    const Vec<T> u[3] = {load(vector(edges.ux, e)), load(vector(edges.uy, e)),
                         load(vector(edges.uz, e))};
    if (degree > 0) {
      nep::harmonics_gradient_of_degree<T>(degree, u, by_harmonic.get(), across);
      const Vec<T> inverse = load(vector(edges.inverse, e));
      by_r -= (across[0] * u[0] + across[1] * u[1] + across[2] * u[2]) * inverse;
      for (Vec<T> &component : across) component *= inverse;
    }
    for (int c = 0; c < 3; ++c) {
      const Vec<T> all = by_r * u[c] + across[c];
      for (int l = 0; l < block; ++l) gradient[c][l] = static_cast<double>(all[l]);
    }
  }

  /// The energy of a center depends on its nearest neighbor besides: as if that were of the core.
  void scale_core(int lane)
  {
    if (by_core[lane] != 0.0) edges.by_r[nearest[lane]] += by_nearest[lane] / by_core[lane];
  }

  void add_core_gradient(int e, double (*gradient)[block]) const
  {
    for (int l = 0; l < block; ++l) {
      const int k = e * block + l;
      if (edges.by_r[k] == 0.0) continue;
      const double factor = by_core[l] * edges.by_r[k] / distance(k);
      gradient[0][l] += factor * edges.x[k];
      gradient[1][l] += factor * edges.y[k];
      gradient[2][l] += factor * edges.z[k];
    }
  }

  void add_totals(int e, const double (*gradient)[block], double (*totals)[block]) const
  {
    const double *const d[3] = {&edges.x[static_cast<std::size_t>(e) * block],
                                &edges.y[static_cast<std::size_t>(e) * block],
                                &edges.z[static_cast<std::size_t>(e) * block]};
    for (int part = 0; part < block; part += width)
      for (int c = 0; c < 3; ++c) {
        const Vec<double> g = load(gradient[c] + part);
        store(totals[c] + part, load(totals[c] + part) + g);
        for (int k = 0; k < 3; ++k) {
          double *const to = totals[3 + 3 * k + c] + part;
          store(to, load(to) - load(d[k] + part) * g);
        }
      }
  }

  void spread(const int *centers, int e, const double (*gradient)[block], PartialSums &sums) const
  {
    for (int l = 0; l < block; ++l) {
      const int k = e * block + l, row = edges.row[k];
      if (row < 0) continue;
      const double force[3] = {-gradient[0][l], -gradient[1][l], -gradient[2][l]};
      double *const f = sums.force + 3 * static_cast<std::ptrdiff_t>(row);
      for (int c = 0; c < 3; ++c) f[c] += force[c];
      if (!sums.atom_virial && !sums.centroid_virial) continue;
      const double d[3] = {edges.x[k], edges.y[k], edges.z[k]};
      spread_virial(Alone{}, d, force, centers[l], row, sums.atom_virial, sums.centroid_virial);
    }
  }

  const Packed<T> &model;
  const Species<T> *species = nullptr;    // of the block
  int which = 0;                          // its number
  Edges<T> edges;
  Buffer<Run> runs;                    // [species that take part]
  Buffer<T> functions;                 // [edges, nfunctions, 2] vectors: radial functions, slopes
  Buffer<T> base;                      // [nbase, 2] vectors
  Buffer<T> harmonics, by_harmonic;    // [tile, harmonics], [harmonics] vectors
  Buffer<double> values, slopes;       // [parts, nvalues], [nvalues] vectors
  Buffer<T> edge_slopes;               // [nmoments] vectors
  Buffer<double> rho;                  // [ndensity] vectors, then slopes by them
  Buffer<double> functions_of_b;       // [functions], [ndensity, functions] vectors
  AceSurroundings around[block];
  int nearest[block] = {};
  double by_core[block] = {}, by_nearest[block] = {};
};

template <class T> class AceProgram : public Program {
 public:
  explicit AceProgram(const AceEngineNetwork &network) : model(network) {}
  Worker *make_worker() override { return new AceWorker<T>(model); }
  int block_size() const override { return lanes<T>; }
  double cutoff() const override
  {
    double largest = 0.0;
    for (const auto &species : model.species)
      for (std::size_t b = 0; species && b < species->bonds.size(); ++b)
        if (species->bonds[b]->rcut > largest) largest = species->bonds[b]->rcut;
    return largest;
  }
  std::size_t table_bytes() const override
  {
    std::size_t bytes = 0;
    for (const auto &table : model.tables) bytes += table->coefficients.size() * sizeof(T);
    return bytes;
  }

 private:
  const Packed<T> model;
};

}    // namespace
}    // namespace ace

Program *make_ace_program(const AceEngineNetwork &network, bool single)
{
  if (single) return new ace::AceProgram<float>(network);
  return new ace::AceProgram<double>(network);
}

}    // namespace pwmlff::PWMLFF_ISA
