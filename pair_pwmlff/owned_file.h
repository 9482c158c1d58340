// SPDX-License-Identifier: GPL-2.0-or-later

// A file of results that grows as a run goes on, and goes on where a run before it ended.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pair_pwmlff {

/// It has one writer: one object in this process, from its construction on, and one process (flock,
/// where the file system has it), once it is open. What is no regular file may have many.
class OwnedFile {
 public:
  /// @param name     relative to the folder where the process is now; the file need not exist
  /// @param what     what it holds, for errors: "the model deviation file"
  /// @param keyword  the keyword of pair_style that names it
  /// @throws std::runtime_error where another object of this process has it
  OwnedFile(const std::string &name, std::string what, std::string keyword);
  ~OwnedFile();
  OwnedFile(const OwnedFile &) = delete;
  OwnedFile &operator=(const OwnedFile &) = delete;

  /// Open it and keep the first bytes of what is there; all the rest is removed.
  /// @param kept  called, once other processes are locked out, with the path; returns how many
  /// @throws std::runtime_error where it cannot be read or written, or another process has it, and
  ///         what kept() throws
  void open(const std::function<std::int64_t(const std::string &path)> &kept);

  std::int64_t size() const { return end; }    // bytes
  /// Take off what follows the first bytes. What is no regular file stays as it is.
  void shorten(std::int64_t size);
  /// Write text at the end, all of it or nothing. @throws std::runtime_error
  void append(const std::string &text);

 private:
  void lock_out_other_processes();
  [[noreturn]] void fail(const std::string &attempt) const;

  const std::string what, keyword, path;    // path absolute
  std::string claimed;                      // path without links; empty where many may write
  int file = -1;                            // descriptor, with the lock
  std::int64_t end = 0;
};

}    // namespace pair_pwmlff
