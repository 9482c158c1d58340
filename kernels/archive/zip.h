// SPDX-License-Identifier: GPL-2.0-or-later

// A zip file in memory, read so strictly that nothing in it can be understood in two ways: torch
// looks at some of the fields only, and at no checksum.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff {

/// A file in a zip file.
struct ZipMember {
  std::string_view name;      // with its folders
  std::string_view stored;    // its bytes as they are in the archive
  std::uint64_t size = 0;     // bytes of its contents
  bool deflated = false;      // else stored as it is
};

class Zip {
 public:
  /// Read the directory and check all members: headers against directory, places, sizes, CRC-32.
  /// @param bytes  of the file; they have to stay where they are
  /// @throws Unusable where a compressed member claims to be too large
  /// @throws std::runtime_error that says what is wrong, where it is damaged or of a form that is
  ///        not read
  explicit Zip(std::string_view bytes);

  /// Files, in the order of the directory. Entries of folders, which have no contents, are left
  /// out.
  const std::vector<ZipMember> &members() const { return members_; }

  /// Name of the first entry, be it of a folder: torch takes the folder of an archive from it.
  std::string_view first() const { return first_; }

  /// The member of this name, or nullptr.
  const ZipMember *find(std::string_view name) const;

 private:
  void read_directory(std::string_view directory, std::uint64_t count);
  void check_places(std::uint64_t end) const;

  std::string_view bytes;
  std::string_view first_;
  std::vector<ZipMember> members_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;    // of members: begin and end
  std::map<std::string_view, std::size_t> index;
};

/// Contents of a member of an archive that has been checked.
std::string contents(const ZipMember &member);

}    // namespace pwmlff
