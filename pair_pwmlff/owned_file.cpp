// SPDX-License-Identifier: GPL-2.0-or-later

#include "owned_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace pair_pwmlff {
namespace {

constexpr int TRIES = 20;    // for a process that is about to end
constexpr std::chrono::milliseconds BETWEEN_TRIES{100};

// Files of all styles and all LAMMPS instances of this process, which may have a thread each.
std::mutex claims_mutex;
std::set<std::string> claims;

}    // namespace

OwnedFile::OwnedFile(const std::string &name, std::string what, std::string keyword) :
    what(std::move(what)), keyword(std::move(keyword)), path(fs::absolute(name).string())
{
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  std::string real = fs::weakly_canonical(path, failure).string();
  if (failure) real = path;
  const std::lock_guard guard(claims_mutex);
  if (!claims.insert(real).second)
    throw std::runtime_error("two ensembles write to '" + name + "'; give each its own " +
                             this->keyword);
  claimed = real;
}

OwnedFile::~OwnedFile()
{
  if (file >= 0) close(file);
  const std::lock_guard guard(claims_mutex);
  claims.erase(claimed);
}

void OwnedFile::fail(const std::string &attempt) const
{
  throw std::runtime_error("cannot " + attempt + " " + what + " " + path + ": " +
                           std::strerror(errno) + "; choose another one with " + keyword);
}

void OwnedFile::open(const std::function<std::int64_t(const std::string &)> &kept)
{
  if (file < 0)
    file = ::open(path.c_str(), (claimed.empty() ? O_WRONLY : O_RDWR) | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail("write");
  lock_out_other_processes();
  if (!claimed.empty()) shorten(kept(path));
}

void OwnedFile::lock_out_other_processes()
{
  if (claimed.empty()) return;
  for (int k = 0; flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++k) {
    if (k == TRIES)
      throw std::runtime_error("another process writes to " + what + " " + path +
                               "; let it end, or choose another file with " + keyword);
    std::this_thread::sleep_for(BETWEEN_TRIES);
  }
}

void OwnedFile::shorten(std::int64_t size)
{
  if (claimed.empty()) return;
  if (ftruncate(file, size) != 0 || lseek(file, size, SEEK_SET) < 0) fail("shorten");
  end = size;
}

void OwnedFile::append(const std::string &text)
{
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int cause = errno;
      if (!claimed.empty() && ftruncate(file, end) == 0) lseek(file, end, SEEK_SET);
      errno = cause;
      fail("write");
    }
    done += static_cast<std::size_t>(written);
  }
  end += static_cast<std::int64_t>(text.size());
}

}    // namespace pair_pwmlff
