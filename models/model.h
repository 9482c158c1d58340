// SPDX-License-Identifier: GPL-2.0-or-later

// A model file: load it, check it against its contract, evaluate it.
//
// Energies are in eV and lengths in angstrom, or both in reduced units for a model that says
// units = "lj". Loading a TorchScript file runs code that the file brings along, but where a record
// (record.h) stands for it.

#pragma once

#include "neighbors.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

using pwmlff::Evaluation, pwmlff::Input, pwmlff::TooManyNeighbors;

class ModelFile;
class Original;

/// What evaluates a model.
enum class Engine {
  automatic,     // fused or compiled where verified against the file's own code, else that code
  fused,         // the fused engine, or an error
  torchscript    // the file's own code
};

/// @param name auto, fused or torchscript
/// @throws std::invalid_argument for another name
Engine parse_engine(const std::string &name);

/// The name of a precision of the fused engine, which pwmlff::precision_of() reads, if it is one.
/// @throws std::invalid_argument for another name
std::string checked_precision(const std::string &name);

/// How to evaluate models, as the user asks for it.
struct EngineOptions {
  Engine engine = Engine::automatic;
  std::string precision = "double";    // of the fused engine: exact, double or mixed
  int gpu = -1;                        // index among the visible GPUs; -1 for the CPU
  bool gpu_demanded = false;           // an error rather than the CPU instead
  bool alone = false;                  // has all atoms, so there is nothing to exchange with others

  /// Opens the library with torch, which a model that load_without_torch() made may come to need.
  /// May throw, and may be called again; empty where the library is open.
  std::function<void()> open_torch;
};

/// What a model file says of itself.
struct ModelInfo {
  std::string file;               // as the user named it
  std::string kind;               // "DP", "EDGE" or "NEP"
  std::string units;              // "metal" or "lj"
  double cutoff;                  // of an edge
  double interaction_range;       // of an atom's energy; more than the cutoff for message passing
  std::vector<int> atom_type;     // atomic numbers; the index is the species
  bool takes_edges;               // instead of padded neighbors
  int max_neighbor;               // of one species; 0 where the kind has no such limit
  std::vector<int> sel;           // [nspecies] of each, where all of them count in a DP, else empty
  std::vector<double> closest;    // [nspecies, nspecies] of the atoms of its data, if it says so
  std::vector<int> without_data;    // atomic numbers that its data had no atom of, if it says so
  bool takes_temperature;           // Input::temperature, as a descriptor
  double screening;                 // of charges, 1/angstrom; 0: it has none
  std::int64_t nparameters;
  std::string dtype;                    // of the parameters as stored in the file
  std::vector<std::string> warnings;    // what a user should know of the file, a sentence each
};

/// How many edges away from an atom those edges start that its energy depends on; -1 for a kind
/// that takes no edges.
int hops(const ModelInfo &info);

class Model {
 public:
  virtual ~Model() = default;
  const ModelInfo &info() const { return info_; }

  /// [nspecies] Which of the species of Neighbors each of this model's is; empty where they are
  /// the same, as everywhere but in an ensemble whose models have their elements in other orders.
  std::vector<int> order;

  /// Choose the species that take part in the simulation and get ready to evaluate.
  /// @param present [number of species]
  /// @throws std::runtime_error where the engine that was asked for cannot run this model
  virtual void select_species(const std::vector<bool> &present) = 0;

  /// What evaluates the model: "fused", "compiled", "plain", "torchscript" or "torchscript in
  /// rounds"; complete after select_species().
  virtual std::string name() const = 0;

  /// The same in one line with all that matters, for the log.
  virtual std::string engine() const = 0;

  /// What does not evaluate it though it came first, and why; empty where nothing was passed over.
  virtual std::string passed_over() const { return {}; }

  /// What it was verified against, on the CPU, where that is not what evaluates it; else null.
  virtual Original *partner() { return nullptr; }

  /// Whether it is evaluated on the GPU of the options; complete after select_species().
  virtual bool on_gpu() const = 0;

  /// What it takes; likewise.
  virtual Needs needs() const { return {}; }

  /// Whether its device finds the neighbors, so that no list of LAMMPS is needed; likewise.
  bool finds_neighbors() const { return needs().device != nullptr; }

  /// Whether evaluations can give the virials of atoms.
  virtual bool has_atom_virial() const = 0;

  /// Whether they can say how far atoms are from the training data, as the model's file does for
  /// the fused engine; complete after select_species().
  virtual bool has_grade() const { return false; }

  /// Whether atoms have charges (FusedEngine::has_charges()), so that evaluations need a box.
  bool has_charges() const { return info_.screening > 0.0; }

  /// Energy, forces and virial. There must be at least one center.
  /// @param input  with all that it needs; virials of atoms only where has_atom_virial(), a grade
  ///               only where has_grade(), Born charges and a box only where has_charges()
  /// @throws TooManyNeighbors, std::runtime_error
  virtual const Evaluation &evaluate(const Input &input) = 0;

  /// Bytes that an evaluation is going to take at its peak on the CPU, beside what it leaves; 0
  /// where it is little, or not known. Evaluates parts of the input.
  virtual double expected_peak(const Input &) { return 0.0; }

 protected:
  explicit Model(ModelInfo info) : info_(std::move(info)) {}
  ModelInfo info_;
};

/// A kind of TorchScript models: the attribute model_type of its files, and what makes a model of
/// one.
struct Kind {
  std::string name;
  std::unique_ptr<Model> (*make)(const ModelFile &file, ModelInfo info,
                                 const EngineOptions &options);
  /// Other programs write such files, with attributes of their own: an optional one of ours that
  /// has another type is theirs and passed over, and so is `dtype`.
  bool of_other_programs = false;
};

/// Let load_model() know a kind besides those of kinds.cpp. In libpwmlff_torch, as they are.
void register_kind(const Kind &kind);

/// Make a model of a file that the library with torch need not run: nep.txt, or TorchScript with a
/// record (record.h) where the options do not ask for the file's own code.
/// @return null for any other file
/// @throws std::runtime_error that says what is wrong with the file
std::unique_ptr<Model> load_without_torch(const std::string &file, const std::string &contents,
                                          const EngineOptions &options);

/// Make a model from the contents of a file.
/// @throws std::runtime_error that says what is wrong with the file
/// @throws TorchNotOpen where load_without_torch() makes none and no TorchPart is registered
std::unique_ptr<Model> load_model(const std::string &file, const std::string &contents,
                                  const EngineOptions &options);

/// What the library with torch, libpwmlff_torch, registers when it is opened. libpwmlff_models has
/// all else, so that a process which evaluates no TorchScript need not load torch.
struct TorchPart {
  std::unique_ptr<Model> (*load)(const std::string &file, const std::string &contents,
                                 const EngineOptions &options);    // as load_model()
  int (*num_threads)();                                            // of torch in this process
  void (*set_num_threads)(int nthreads);
  /// Open the CUDA part of the torch that this process runs, which is a library of its own. To be
  /// called before the first evaluation: torch looks for it once, at the first derivative, and
  /// never again. Returns empty, or in one line what is missing.
  std::string (*open_cuda)();
};
void register_torch(const TorchPart &part);

/// That part.
/// @throws TorchNotOpen (torch_not_open.h) where the library is not open
const TorchPart &torch_part();

/// The environment variable PWMLFF_GPU_STAND_IN, which names a device of kernels/core/device.h to
/// use in the place of a GPU: `cpu` runs the code for GPUs on the CPU, for tests. Empty without.
std::string gpu_stand_in();

/// Whether that is `none`, where forces are zero and nothing is verified.
bool times_host_alone();

/// Let freed memory stay with this process, or give it back again, where the C library is GNU's.
/// The tensors of a step leave hundreds of megabytes; given back to the system, they come back page
/// by page, zeroed anew, which took a fifth of a step of MACE. For the whole process, so it is up
/// to who runs it; not to be called by two threads at a time.
void keep_memory(bool keep);

}    // namespace pwmlff::models
