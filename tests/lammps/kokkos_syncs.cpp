// SPDX-License-Identifier: GPL-2.0-or-later

// Preloaded into an lmp with package KOKKOS: how often the pair style asks for positions or forces
// in memory of the host, which is a copy of all atoms where KOKKOS runs on a GPU. Where it runs on
// the host, as in tests, there is one memory, and nothing else shows it. Forces on the device may
// be asked for once in an evaluation: LAMMPS may copy those of the host over them each time. Also
// how often rows of ghosts go through buffers of the host. A line at the end has the counts.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#define SYNC "_ZN9LAMMPS_NS10AtomKokkos4syncENS_14ExecutionSpaceEj"
#define FORWARD "_ZN9LAMMPS_NS9CommBrick12forward_commEPNS_4PairEi"
#define REVERSE "_ZN9LAMMPS_NS9CommBrick12reverse_commEPNS_4PairEi"

namespace {

struct Count {
  long onto_host = 0, forces = 0, rows = 0;
  ~Count() { std::fprintf(stderr, "copies to the host: %ld %ld %ld\n", onto_host, forces, rows); }
} count;

template <class Function> Function *next(const char *name)
{
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

}    // namespace

/// LAMMPS_NS::AtomKokkos::sync(ExecutionSpace, unsigned); spaces are the host and the device, the
/// bits of fields are those of atom_masks.h.
extern "C" void sync_atoms(void *atom, int space, unsigned fields) asm(SYNC);

extern "C" void sync_atoms(void *atom, int space, unsigned fields)
{
  constexpr unsigned POSITIONS = 1U << 0, FORCES = 1U << 2;
  Dl_info caller{};
  const bool ours = dladdr(__builtin_return_address(0), &caller) &&
                    std::strstr(caller.dli_fname, "libpair_pwmlff");
  if (ours && space == 0 && (fields & (POSITIONS | FORCES))) ++count.onto_host;
  if (ours && space == 1 && (fields & FORCES)) ++count.forces;
  static auto *const sync = next<decltype(sync_atoms)>(SYNC);
  sync(atom, space, fields);
}

/// LAMMPS_NS::CommBrick::forward_comm(Pair *, int) and reverse_comm.
extern "C" void forward_rows(void *comm, void *pair, int width) asm(FORWARD);
extern "C" void reverse_rows(void *comm, void *pair, int width) asm(REVERSE);

extern "C" void forward_rows(void *comm, void *pair, int width)
{
  ++count.rows;
  next<decltype(forward_rows)>(FORWARD)(comm, pair, width);
}

extern "C" void reverse_rows(void *comm, void *pair, int width)
{
  ++count.rows;
  next<decltype(reverse_rows)>(REVERSE)(comm, pair, width);
}
