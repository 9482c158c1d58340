// SPDX-License-Identifier: GPL-2.0-or-later

#include "zip.h"

#include "inflate.h"
#include "unusable.h"

#include <algorithm>
#include <stdexcept>

namespace pwmlff {
namespace {

/* ---- the parts of a zip file: APPNOTE.TXT of PKWARE, 6.3.10, sections 4.3 and 4.5 ---- */

constexpr std::string_view LOCAL = "PK\x03\x04", ENTRY = "PK\x01\x02", END = "PK\x05\x06",
                           END64 = "PK\x06\x06", LOCATOR64 = "PK\x06\x07";
constexpr std::uint64_t LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22, END64_BYTES = 56,
                        LOCATOR64_BYTES = 20;
constexpr std::uint64_t FULL16 = 0xFFFF, FULL32 = 0xFFFFFFFF;    // "look into the zip64 field"
constexpr std::uint32_t ZIP64_FIELD = 1;

constexpr std::uint64_t NEWEST = 63;    // version of that text, without the point
constexpr std::uint32_t DEFLATE_OPTIONS = 0x6, SIZES_FOLLOW = 0x8, UTF8 = 0x800;    // flags
constexpr std::uint32_t DOS_FOLDER = 0x10;                                          // an attribute
constexpr std::uint64_t STORED = 0, DEFLATED = 8;                                   // methods

/// Compressed members may not unfold to more than this, or to so many times their size.
constexpr std::uint64_t SMALL = 1 << 24, MOST_TIMES = 64;

std::string quoted(std::string_view name)
{
  std::string text = "'";
  for (const char c : name.substr(0, 80)) text += c >= ' ' && c < 127 ? c : '?';
  return text + (name.size() > 80 ? "...'" : "'");
}

std::uint64_t number(std::string_view bytes, std::size_t offset, int n)
{
  std::uint64_t value = 0;
  for (int k = 0; k < n; ++k)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[offset + k])) << (8 * k);
  return value;
}

bool begins(std::string_view bytes, std::uint64_t offset, std::string_view signature)
{
  return offset <= bytes.size() && bytes.substr(offset, signature.size()) == signature;
}

/// A part of the file. @throws where it goes beyond the end
std::string_view part(std::string_view bytes, std::uint64_t offset, std::uint64_t size,
                      const std::string &what)
{
  if (offset > bytes.size() || size > bytes.size() - offset)
    fail(what + " goes beyond the end of the file");
  return bytes.substr(offset, size);
}

/// Replace the values that are full by those of the zip64 field, in their order.
void read_zip64(std::string_view extra, const std::vector<std::uint64_t *> &values,
                const std::string &what)
{
  if (std::none_of(values.begin(), values.end(), [](auto *v) { return *v == FULL32; })) return;
  for (std::size_t offset = 0; offset + 4 <= extra.size();) {
    const std::uint64_t kind = number(extra, offset, 2), size = number(extra, offset + 2, 2);
    const std::string_view field = part(extra, offset + 4, size, "the extra field of " + what);
    offset += 4 + size;
    if (kind != ZIP64_FIELD) continue;
    std::size_t next = 0;
    for (std::uint64_t *value : values) {
      if (*value != FULL32) continue;
      *value = number(part(field, next, 8, "the zip64 field of " + what), 0, 8);
      next += 8;
    }
    return;
  }
}

}    // namespace

Zip::Zip(std::string_view bytes) : bytes(bytes)
{
  const auto end_offset = bytes.rfind(END);
  if (!begins(bytes, 0, LOCAL) || end_offset == std::string_view::npos ||
      bytes.size() - end_offset < END_BYTES)
    fail("it has no directory at its end: it is truncated");
  const std::string_view end = bytes.substr(end_offset, END_BYTES);
  if (end_offset + END_BYTES + number(end, 20, 2) != bytes.size())
    fail("it does not end where its directory ends: bytes are missing or added");
  std::uint64_t count = number(end, 10, 2), size = number(end, 12, 4), start = number(end, 16, 4);
  if (number(end, 4, 4) != 0 || number(end, 8, 2) != count)
    fail("its directory is spread over several files");

  std::uint64_t directory_end = end_offset;
  if (end_offset >= LOCATOR64_BYTES && begins(bytes, end_offset - LOCATOR64_BYTES, LOCATOR64)) {
    const std::string_view locator = bytes.substr(end_offset - LOCATOR64_BYTES, LOCATOR64_BYTES);
    directory_end = number(locator, 8, 8);
    if (number(locator, 4, 4) != 0 || number(locator, 16, 4) != 1 ||
        directory_end > end_offset - LOCATOR64_BYTES ||
        end_offset - LOCATOR64_BYTES - directory_end != END64_BYTES ||
        !begins(bytes, directory_end, END64))
      fail("the end of its directory is damaged");
    const std::string_view end64 = bytes.substr(directory_end, END64_BYTES);
    const auto agrees = [&](std::uint64_t &value, std::uint64_t full, std::size_t offset) {
      const std::uint64_t wide = number(end64, offset, 8);
      const bool same = value == full || value == wide;
      value = wide;
      return same;
    };
    if (number(end64, 4, 8) != END64_BYTES - 12 || number(end64, 16, 8) != 0 ||
        number(end64, 24, 8) != number(end64, 32, 8) || !agrees(count, FULL16, 32) ||
        !agrees(size, FULL32, 40) || !agrees(start, FULL32, 48))
      fail("the end of its directory is damaged");
  }
  if (start > directory_end || directory_end - start != size)
    fail("its directory is not where it should be");
  read_directory(bytes.substr(start, size), count);
  check_places(start);
}

void Zip::read_directory(std::string_view directory, std::uint64_t count)
{
  std::uint64_t position = 0;
  while (position < directory.size()) {
    const std::string_view entry = part(directory, position, ENTRY_BYTES, "its directory");
    if (!begins(entry, 0, ENTRY)) fail("its directory is damaged");
    const std::uint64_t name_bytes = number(entry, 28, 2), extra_bytes = number(entry, 30, 2);
    ZipMember member;
    member.name = part(directory, position + ENTRY_BYTES, name_bytes, "its directory");
    const std::string what = "its member " + quoted(member.name);
    const std::string_view extra =
        part(directory, position + ENTRY_BYTES + name_bytes, extra_bytes, what);
    position += ENTRY_BYTES + name_bytes + extra_bytes + number(entry, 32, 2);

    const std::uint64_t flags = number(entry, 8, 2), method = number(entry, 10, 2),
                        crc = number(entry, 16, 4);
    std::uint64_t packed = number(entry, 20, 4), offset = number(entry, 42, 4);
    member.size = number(entry, 24, 4);
    read_zip64(extra, {&member.size, &packed, &offset}, what);
    if (member.name.empty() || member.name.find('\0') != std::string_view::npos)
      fail(what + " has no proper name");
    const bool named_folder = member.name.back() == '/';
    if (named_folder ? member.size != 0 : (number(entry, 38, 4) & DOS_FOLDER) != 0)
      fail(what + " is marked as a folder, so torch would not read it");
    if (number(entry, 6, 1) > NEWEST) fail(what + " needs a newer form of zip files");
    if (flags & ~(DEFLATE_OPTIONS | SIZES_FOLLOW | UTF8))
      fail(what + " is encrypted, or has flags that are not known");
    if (method != STORED && method != DEFLATED)
      fail(what + " is compressed by method " + std::to_string(method) +
           "; expected stored (0) or deflated (8)");
    member.deflated = method == DEFLATED;
    if (!named_folder && !index.emplace(member.name, members_.size()).second)
      fail(what + " is there twice");

    // What stands before the member itself says the same.
    const std::string_view local = part(bytes, offset, LOCAL_BYTES, what);
    const std::uint64_t begin = offset + LOCAL_BYTES + number(local, 26, 2) + number(local, 28, 2);
    if (!begins(local, 0, LOCAL) || number(local, 26, 2) != name_bytes ||
        part(bytes, offset + LOCAL_BYTES, name_bytes, what) != member.name ||
        number(local, 6, 2) != flags || number(local, 8, 2) != method)
      fail(what + " and the directory differ");
    if (!(flags & SIZES_FOLLOW)) {
      std::uint64_t local_packed = number(local, 18, 4), local_size = number(local, 22, 4);
      read_zip64(part(bytes, offset + LOCAL_BYTES + name_bytes, number(local, 28, 2), what),
                 {&local_size, &local_packed}, what);
      if (number(local, 14, 4) != crc || local_packed != packed || local_size != member.size)
        fail(what + " and the directory differ in their sizes or checksums");
    }
    member.stored = part(bytes, begin, packed, what);
    if (!member.deflated && packed != member.size)
      fail(what + " has " + std::to_string(packed) + " bytes, expected " +
           std::to_string(member.size));
    if (member.deflated && member.size > std::max(SMALL, MOST_TIMES * packed))
      throw Unusable(what + " claims to be " + std::to_string(member.size) +
                     " bytes, compressed to " + std::to_string(packed) +
                     "; store it without compression (zip -0)");
    std::uint32_t found = 0;
    try {
      found = member.deflated ? crc32(contents(member)) : crc32(member.stored);
    } catch (const std::exception &error) {
      fail(what + ": " + error.what());
    }
    if (found != crc) fail(what + " does not have the contents that it was written with (CRC-32)");
    if (places.empty()) first_ = member.name;
    places.emplace_back(offset, begin + packed);
    if (!named_folder) members_.push_back(member);
  }
  if (position != directory.size() || places.size() != count)
    fail("its directory holds " + std::to_string(places.size()) + " members, expected " +
         std::to_string(count));
}

void Zip::check_places(std::uint64_t end) const
{
  auto sorted = places;
  std::sort(sorted.begin(), sorted.end());
  std::uint64_t free = 0;
  for (const auto &[begin, stop] : sorted) {
    if (begin < free) fail("two of its members share bytes");
    free = stop;
  }
  if (free > end) fail("a member and the directory share bytes");
}

const ZipMember *Zip::find(std::string_view name) const
{
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &members_[found->second];
}

std::string contents(const ZipMember &member)
{
  return member.deflated ? inflate(member.stored, member.size) : std::string(member.stored);
}

}    // namespace pwmlff
