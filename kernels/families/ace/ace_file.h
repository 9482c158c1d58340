// SPDX-License-Identifier: GPL-2.0-or-later

// What files of ACE hold, as far as one is read, and the words that the kinds of files share.

#pragma once

#include "network.h"

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// A bond as it stands in a file: its coefficients have its own shape.
struct FileBond {
  AceBond bond;
  int nradial = 0, l_max = 0;
  std::string inner = "density";
};

/// What was read so far, and by which names.
struct AceFile {
  std::vector<std::string> elements;
  AceNetwork network;
  std::map<std::array<int, 2>, FileBond> bonds;
  std::set<int> embeddings;
  std::map<int, AceSpecies> functions;           // their rows alone
  std::map<int, std::vector<int>> ndensity;      // of each function
  std::map<int, std::vector<double>> inverse;    // of active sets
  // of GRACE/FS
  double scale = 1.0, shift = 0.0, nnorm = 1.0;
  bool grace = false;
};

/// @throws std::invalid_argument for a kind of ACE that is not evaluated here, by its name
[[noreturn]] void not_evaluated(const std::string &what);
AceRadial radial_of(std::string_view name);
AceEmbedding embedding_of(std::string_view name);
AceInner inner_of(std::string_view name);

/// Weights and powers of a species, which are in turn in a file.
void set_fs_parameters(AceSpecies &species, const std::vector<double> &parameters, int ndensity);

/// What was read of species k, made if need be.
AceSpecies &species_of(AceFile &file, int k);

/// A .yace, or the YAML of GRACE/FS.
void read_yaml(std::string_view contents, AceFile &file);

/// An .ace of one element: of others, these files do not say the embedding.
void read_text(std::string_view contents, AceFile &file);

}    // namespace pwmlff
