// SPDX-License-Identifier: GPL-2.0-or-later

// What a file of TorchScript may bring along, so that a fused engine evaluates it without torch:
// what the file says of itself, the arrays that the engine takes, and what the file's own code gave
// on the test clusters when the file was written. That is what the engine is verified against.
//
// The extra file "engine-record" holds a line "pwmlff-record 2", a line with the digest of the rest
// of it and of all other members of the archive (archive/model_archive.h), which tells a record of
// another model, and arrays (core/arrays.h) by the names in record.cpp. A record of another number
// counts for nothing.

#pragma once

#include "model.h"
#include "verification.h"

#include "core/family.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pwmlff::models {

/// Arrays of a network in an archive, in an extra file NAME-arrays for the name of its family; of a
/// MACE python/pwmlff/convert/mace_network.py writes them. Nothing where there are none.
/// @throws std::runtime_error where they are damaged
std::optional<pwmlff::Arrays> arrays_in(std::string_view archive);

struct Record {
  /// What was expected of some species: which take part, and what the file's own code gave.
  struct Trial {
    std::vector<bool> present;    // [nspecies]
    std::string identity;         // of the test clusters
    std::vector<ClusterValues> clusters;
  };

  ModelInfo info;    // but for the name of the file
  Gate gate;         // of the file's own code
  std::shared_ptr<const pwmlff::Network> network;
  std::vector<Trial> trials;

  /// The one for these species, or null.
  const Trial *trial(const std::vector<bool> &present) const;
};

/// The contents of the extra file.
/// @param network  its arrays, where arrays_in() the archive finds none
/// @param archive  that it is to be a part of
std::string written(const Record &record, const pwmlff::Arrays *network,
                    const std::string &archive);

/// Whether a training of pwmlff has written an archive, as its card tells.
bool trained_here(std::string_view archive);

/// Atomic numbers of elements that the training of an archive had no atom of, as far as it says.
std::vector<int> elements_without_data(std::string_view archive);

/// The record in an archive; nothing where there is none, or where it is not of this very archive
/// or not whole, as the file's own code is there to say what holds.
std::optional<Record> read_record(const std::string &archive);

}    // namespace pwmlff::models
