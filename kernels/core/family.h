// SPDX-License-Identifier: GPL-2.0-or-later

// What a family of models implements to be evaluated by engines of its own: a Network, which holds
// the numbers of a model, and a Family, by which a Network is read.
//
// A family is a folder of families/ and a line of families/families.h. In the folder are
//   *.cpp          compiled once, family.cpp with the Family among them
//   cpu/*.cpp      compiled once for each instruction set (cpu/simd.h): programs (cpu/program.h)
//   gpu/*.cpp, gpu/*.cu    code for GPUs, if there is any
// tests/kernels/lennard_jones/family.cpp is a whole small one.

#pragma once

#include "arrays.h"
#include "device.h"
#include "evaluation.h"
#include "export.h"
#include "precision.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

struct EngineSettings {
  Precision precision = Precision::tables;
  std::vector<bool> present;                   // [nspecies] the species that take part
  std::shared_ptr<Device> device = nullptr;    // null for the CPU
  std::size_t chunk_bytes = 0;                 // of a device for arrays over edges; 0 for the usual
};

/// What a network says of itself.
struct NetworkInfo {
  std::vector<int> atom_type;        // [nspecies] atomic numbers
  double cutoff = 0.0;               // of what an engine finds neighbors within
  std::vector<int> slots;            // [nspecies] most neighbors of each; empty without a limit
  bool takes_temperature = false;    // Input::temperature
  bool has_tables = true;            // in precision double, which exact has not
  bool has_gpu_code = true;          // engines take EngineSettings::device
  double screening = 0.0;    // alpha of Ewald's sum of its charges, 1/angstrom; 0: it has none
  // Of a family with files of its own.
  bool has_grade = false;    // its engines say how far atoms are from what it was trained on
  std::size_t nparameters = 0;
  std::vector<int> without_data;        // atomic numbers that its data had no atom of
  std::vector<std::string> warnings;    // what a user should know of it, a sentence each
};

/// A model as numbers, which stay as they are while engines are there.
class PWMLFF_KERNELS_API Network {
 public:
  virtual ~Network();
  virtual NetworkInfo info() const = 0;
  /// It keeps what it needs of the network.
  /// @throws std::exception that says why there is none
  virtual std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const = 0;
  /// The formulas as they stand, on one thread of the CPU, for a family whose files bring no code
  /// of their own to compare engines with; else null.
  virtual std::unique_ptr<FusedEngine> plain() const;
};

struct Family {
  const char *name;    // in the first line of arrays (arrays.h), and of members NAME-arrays
  const char *kind;    // in messages
  /// @throws std::runtime_error that says what is wrong with the arrays
  std::unique_ptr<Network> (*read)(const Arrays &arrays);
  /// Whether the contents of a file begin as one does that import() reads; null where the family
  /// has no files of its own.
  bool (*recognizes)(std::string_view contents);
  /// The arrays of a file.
  /// @throws std::exception whose text goes on after the name of the file
  Arrays (*import)(std::string_view contents);
};

/// All of them; what is added here at run time is known from then on.
PWMLFF_KERNELS_API std::vector<const Family *> &families();

/// The family with files of its own of which these contents are one; null where there is none.
PWMLFF_KERNELS_API const Family *family_of_file(std::string_view contents);

/// @throws std::runtime_error where there is none of this name
PWMLFF_KERNELS_API const Family &family_named(const std::string &name);

/// What its family makes of arrays.
/// @throws std::runtime_error also for arrays of an unknown family
PWMLFF_KERNELS_API std::unique_ptr<Network> read_network(const Arrays &arrays);

}    // namespace pwmlff
