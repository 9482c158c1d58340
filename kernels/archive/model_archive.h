// SPDX-License-Identifier: GPL-2.0-or-later

// Whether the bytes of a model file are a sound TorchScript archive, and whether what it says of
// itself is plausible: asked before torch sees the file, by the pair style and by Python alike.
// torch itself compares no checksum, and takes sizes and places from a file as they are.
//
// A library of its own: Python opens it without torch.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// Check the zip file (zip.h) and that each tensor lies within its storage and each storage is a
/// member of its size. Code is not looked at.
/// @throws std::runtime_error whose text goes on after the name of the file: "is damaged: ...", "is
///         a ...", "cannot be used, though no damage was found: ...", with what to do
/// @throws std::invalid_argument likewise, for a zip file that is sound but something else
void check_model_archive(std::string_view bytes);

/// Name of the Python class of the module in an archive that is sound: "module.Name".
/// @throws std::runtime_error for a zip file that holds no module
std::string model_class(std::string_view bytes);

/// What torch calls extra files of an archive that is sound, those whose names begin with a prefix:
/// contents by name.
std::map<std::string, std::string> extra_files(std::string_view bytes, std::string_view prefix);

/// SHA-256 of the names and contents of all members of an archive that is sound, but for one extra
/// file: the same wherever they stand in the file, and whatever the archive's folder is called.
std::string digest_without(std::string_view bytes, std::string_view extra_file);

/// What a model says of itself.
struct ModelLimits {
  double cutoff = 0.0;                   // angstrom, or reduced
  double interaction_range = 0.0;        // likewise
  std::optional<double> max_neighbor;    // of one element, where the kind has such a limit
  std::optional<double> ntypes;          // number of elements, where the file says it
  std::vector<std::int64_t> atom_type;
};

/// Check that it is finite, and what a simulation can have: anything else would hang it or exhaust
/// the memory.
/// @throws std::runtime_error whose text goes on after the name of the file
void check_limits(const ModelLimits &limits);

}    // namespace pwmlff

extern "C" {

/// The same for other languages. @return 0, or for an error, whose text, ended by a zero, is then
/// in message[0 .. message_size-1], 1 where the zip file is sound but something else, else -1
int pwmlff_check_model_archive(const char *bytes, uint64_t size, char *message, int message_size);

/// The name is then in text[0 .. text_size-1].
int pwmlff_model_class(const char *bytes, uint64_t size, char *text, int text_size);

/// What a folder is that was given in the place of a model file; text as of pwmlff_model_class.
void pwmlff_name_of_folder(const char *path, char *text, int text_size);

/// max_neighbor and ntypes: null pointers where there are none; atom_type [entries]
int pwmlff_check_limits(double cutoff, double interaction_range, const double *max_neighbor,
                        const double *ntypes, const int64_t *atom_type, int entries, char *message,
                        int message_size);
}
