// SPDX-License-Identifier: GPL-2.0-or-later

// What a file of TorchScript may bring along, so that a fused engine evaluates it without torch:
// what the file says of itself, the arrays that the engine takes, and what the file's own code gave
// on the test clusters when the file was written. That is what the engine is verified against.
//
// The extra file "engine-record" holds a line "pwmlff-record 1", a line with the digest of the rest
// of it and of all other members of the archive (archive/model_archive.h), which tells a record of
// another model, and numbers with the low byte first, in the order of record.cpp. Another order has
// another number in the first line.

#pragma once

#include "model.h"
#include "verification.h"

#include "dp/network.h"
#include "mace/network.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pwmlff::models {

/// An extra file with the arrays of a MACE model; python/pwmlff/convert/mace_network.py writes it.
constexpr const char *MACE_ARRAYS = "mace-arrays";

struct Record {
  /// What was expected of some species: which take part, and what the file's own code gave.
  struct Trial {
    std::vector<bool> present;    // [nspecies]
    std::string identity;         // of the test clusters
    std::vector<ClusterValues> clusters;
  };

  ModelInfo info;                             // but for the name of the file
  Gate gate;                                  // of the file's own code
  std::optional<pwmlff::DPNetwork> dp;        // of kind DP
  std::optional<pwmlff::MaceNetwork> mace;    // of kind EDGE; it stands in MACE_ARRAYS
  std::vector<Trial> trials;

  /// The one for these species, or null.
  const Trial *trial(const std::vector<bool> &present) const;
};

/// The contents of the extra file.
/// @param archive  that it is to be a part of
std::string written(const Record &record, const std::string &archive);

/// Whether a training of pwmlff has written an archive, as its card tells.
bool trained_here(std::string_view archive);

/// Atomic numbers of elements that the training of an archive had no atom of, as far as it says.
std::vector<int> elements_without_data(std::string_view archive);

/// The record in an archive; nothing where there is none, or where it is not of this very archive
/// or not whole, as the file's own code is there to say what holds.
std::optional<Record> read_record(const std::string &archive);

}    // namespace pwmlff::models
