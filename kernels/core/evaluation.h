// SPDX-License-Identifier: GPL-2.0-or-later

// What engines and models take and give.
//
// Energies and lengths are in the units of the model. With r_ij = x_j - x_i and E the sum of atomic
// energies E_i,
//   force_k  = -dE/dx_k
//   virial   = -sum over i, j of r_ij (x) dE_i/dr_ij, the sign of LAMMPS's virial
//   atom_virial: each term of that sum half to i and half to j, as LAMMPS's compute stress/atom
//   centroid_virial: each term to j, where E_i depends on the position of j
//     (Fan et al. 2015, doi:10.1103/PhysRevB.92.094301)
//   of an energy in reciprocal space both have the part of an atom that adds up to the whole, as
//     LAMMPS's kspace styles
// Components of virials are in LAMMPS's order, xx yy zz xy xz yz yx zx zy; six are the first six.

#pragma once

#include "export.h"
#include "host_device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pwmlff {

class Device;
class GpuNeighbors;

/// Numbers [nrows, width] of somebody else.
struct ExchangedRows {
  template <class T>
  ExchangedRows(T *rows, std::size_t width, std::shared_ptr<Device> device = nullptr) :
      rows(rows), width(width), device(std::move(device))
  {
  }

  std::variant<double *, float *> rows;
  std::size_t width;
  std::shared_ptr<Device> device;    // in whose memory they are; null: in that of the host
};

/// How rows that are no centers, but stand for centers of this rank or another one, get what those
/// have, and give back what belongs to those. Collective: all ranks call the same.
class PWMLFF_KERNELS_API RowExchange {
 public:
  virtual ~RowExchange();
  /// Set the other rows to those of their centers. Only where there are other ranks may they be in
  /// memory of a device.
  virtual void forward(const ExchangedRows &rows) = 0;
  /// Add the other rows to those of their centers.
  virtual void reverse(const ExchangedRows &rows) = 0;
  /// Add numbers [n] of all ranks up.
  virtual void sum(double *numbers, int n) = 0;
  /// Whether there are other ranks, or sum() leaves numbers as they are.
  virtual bool has_others() const = 0;
};

struct Input;

/// What finds the reciprocal part of a Coulomb energy in the place of an engine, as a mesh does.
class PWMLFF_KERNELS_API ReciprocalSolver {
 public:
  virtual ~ReciprocalSolver();
  /// Collective: all ranks call it together.
  /// @param charge       [ncenters] e; 0 of centers that take no part; they add up to 0
  /// @param potential    [ncenters] out, V: derivatives of the energy by them
  /// @param field        [ncenters, 3] out, V/angstrom: less its derivatives at fixed charges
  /// @param virial       [6] out, eV; those of all ranks add up to the whole
  /// @param atom_virial  [ncenters, 6] out, or null
  virtual void solve(const Input &input, const double *charge, double *potential, double *field,
                     double *virial, double *atom_virial) = 0;
};

/// Rows are atoms; the first ncenters of them are those whose energies are wanted.
struct Input {
  int ncenters = 0, nrows = 0;
  const double *x = nullptr;       // [nrows, 3]
  const int *species = nullptr;    // [nrows] index into the model's elements, or -1: takes no part
  /// Rows of species s near center i are candidate[first[i*nspecies+s]] up to
  /// candidate[first[i*nspecies+s+1]]: all within the cutoff, and some beyond it. Null where the
  /// device has made the list.
  const int *first = nullptr, *candidate = nullptr;
  /// Which list of species and candidates this is; another one has another number. What is made of
  /// a list is kept for the next input with its number. 0: make it anew.
  std::uint64_t list = 0;
  int nthreads = 1;
  double temperature = 0.0;    // K, for models that have it as a descriptor
  bool want_atom_virial = false, want_centroid_virial = false;
  bool want_grade = false;    // where FusedEngine::has_grade()
  bool want_born = false;     // where FusedEngine::has_charges()
  /// [3, 3] edges of a box that is periodic along all of them, row by row, for engines with
  /// charges; else null.
  const double *cell = nullptr;
  /// For them likewise; null where the engine finds the reciprocal part itself, which needs a cell.
  ReciprocalSolver *reciprocal = nullptr;
  /// For engines that pass messages between rows; null where all rows are centers.
  RowExchange *exchange = nullptr;

  /// The same atoms and candidates on the device of an engine, with x up to date; else null. With
  /// it, x and species of the host are not read.
  const GpuNeighbors *on_device = nullptr;
  /// Where such an engine adds its forces too, times the factor: [nrows, 3] on its device, or null.
  double *force_on_device = nullptr;
  double force_factor = 1.0;
  /// Whether what is there for each row or center is wanted on the host. Where it is not, such an
  /// engine leaves it null, unless an energy or a force is no number.
  bool want_rows = true;

  // For models that take slots, the neighbors within the cutoff in a fixed number of them for each
  // center and species. Empty slots hold zeros.
  int nslots = 0;                // of a center
  int *slot_row = nullptr;       // [ncenters, nslots] row of the neighbor + 1, or 0
  double *slot_rij = nullptr;    // [ncenters, nslots, 4] r, dx, dy, dz

  // For models that take edges, those shorter than the cutoff in ascending order of their first
  // node. A node stands for all copies of an atom on this rank; centers come first.
  std::int64_t nedges = 0, nnodes = 0;
  std::int64_t *edge_index = nullptr;    // [2, nedges] nodes of centers, of neighbors
  double *edge_vec = nullptr;            // [nedges, 3] x_j - x_i
  const int *node_row = nullptr;         // [nnodes]
};

/// What an evaluation adds up for each row, in one block of memory. Another such quantity has its
/// place here and in evaluation.cpp, and is added where forces are:
/// families/ace/cpu/ace_program.cpp, families/ace/plain_ace.cpp, families/dp/cpu/edges.h,
/// families/dp/gpu/forces.h, families/mace/cpu/mace_program.cpp, families/nep/cpu/shell.h,
/// families/nep/gpu/forces.h and families/nep/plain_nep.cpp.
struct RowSums {
  double *force = nullptr;              // [nrows, 3]
  double *atom_virial = nullptr;        // [nrows, 6] or null
  double *centroid_virial = nullptr;    // [nrows, 9] or null
  /// [nrows] or null: of the centers i within the cutoff R of a row and of itself the sum of
  /// w grade_i^2, with w = (1 - r^2/R^2)^8, which is 1 for itself; and, of centers alone, the sum
  /// of w over all rows. The root of the first over the second, once other rows are added to those
  /// of their centers, is gamma (python/pwmlff/train/extrapolation.py).
  double *near_square = nullptr, *near_weight = nullptr;
  /// [nrows, 9] or null, e: derivatives of the dipole moment (row by row its component, then that
  /// of the position), once other rows are added to those of their centers.
  double *born = nullptr;

  RowSums() = default;
  /// @param memory size(input) numbers
  RowSums(const Input &input, double *memory);
  static std::size_t size(const Input &input);
};

/// Arrays belong to what has evaluated, and hold until it evaluates again.
struct Evaluation : RowSums {
  double energy = 0.0;                    // of all centers
  const double *atom_energy = nullptr;    // [ncenters] zero for centers that take no part
  std::array<double, 9> virial{};
  const double *grade =
      nullptr;    // [ncenters] each alone (families/dp/network.h); null where not wanted
  /// [ncenters] e, and V: the derivative of the energy by the charge at fixed positions, less its
  /// mean over the box. Null where FusedEngine::has_charges() is false.
  const double *charge = nullptr, *potential = nullptr;
  double mean_charge = 0.0;     // e, of the box, which was taken off
  bool known_finite = false;    // energies of atoms and forces, which the engine has looked at
};

/// The components of a matrix [3, 3], row by row, in the order of an Evaluation.
PWMLFF_KERNELS_API std::array<double, 9> in_order_of_lammps(const double *matrix);

/// @throws std::invalid_argument where charges cannot be evaluated: without a box, or with rows of
///         which nobody knows the charges
PWMLFF_KERNELS_API void require_box(const Input &input);

/// Whether ranks have the same numbers after they were added up over all of them.
/// @param mine   the sum of their sizes
/// @param total  that of all ranks
PWMLFF_FORMULA bool are_same_sums(double mine, double total, double nranks)
{
  const double difference = total - nranks * mine, least = 1e-9 * total;
  return !(difference > least || difference < -least);
}

/// What is thrown on each of them where they have not.
struct PWMLFF_KERNELS_API SumsDiffer : std::runtime_error {
  SumsDiffer();
};

/// This project's own code for a model, on the CPU or on a device.
class PWMLFF_KERNELS_API FusedEngine {
 public:
  virtual ~FusedEngine();
  FusedEngine(const FusedEngine &) = delete;
  FusedEngine &operator=(const FusedEngine &) = delete;

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @throws TooManyNeighbors, SumsDiffer, std::invalid_argument for a center of a species that
  ///         takes no part and for neighbors on another device, std::runtime_error where the device
  ///         fails
  virtual const Evaluation &evaluate(const Input &input) = 0;

  /// Where Input::on_device has to be; null for an engine that takes the list of the host.
  const std::shared_ptr<Device> &device() const { return device_; }
  /// The instruction set in use, or the name of the device.
  const std::string &processor() const { return processor_; }
  std::size_t table_bytes() const { return table_bytes_; }    // of all; 0 without tables
  /// Largest errors of values and slopes of the tables, before rounding, where they are known.
  const std::array<double, 2> &table_error() const { return table_error_; }
  /// Numbers of a row that go through Input::exchange at a time, at most; 0 where none do.
  int exchange_width() const { return exchange_width_; }
  /// Whether these are of float32. Ranks that differ in it do not understand each other.
  bool exchanges_single() const { return exchanges_single_; }
  /// Whether the model says how far atoms are from its training data.
  bool has_grade() const { return has_grade_; }
  /// Whether atoms have charges. Their energies depend on all atoms of the box, so all ranks
  /// evaluate together, with Input::cell and, where there are several, Input::exchange.
  bool has_charges() const { return has_charges_; }

 protected:
  /// @param device null for the CPU
  explicit FusedEngine(std::shared_ptr<Device> device);

  const std::shared_ptr<Device> device_;
  std::string processor_;
  std::size_t table_bytes_ = 0;
  std::array<double, 2> table_error_{};
  bool has_grade_ = false, has_charges_ = false;
  int exchange_width_ = 0;
  bool exchanges_single_ = false;
};

/// A center with more neighbors of one species within the cutoff than a model has slots.
struct Excess {
  int row, species, count, limit;
};

struct PWMLFF_KERNELS_API TooManyNeighbors : std::invalid_argument, Excess {
  explicit TooManyNeighbors(const Excess &excess);
  /// what(), with better names.
  /// @param center "atom 17"
  /// @param species "element Hf"
  std::string text(const std::string &center, const std::string &species) const;
};

/// Centers that take part: order[first[s]] .. order[first[s+1]-1] are those of species s.
struct Centers {
  /// @param species [ncenters] as in Input
  /// @param present [nspecies]
  /// @throws std::invalid_argument for a center of a species that does not take part
  Centers(const int *species, int ncenters, const std::vector<bool> &present);

  std::vector<int> order, first;
};

}    // namespace pwmlff
