// SPDX-License-Identifier: GPL-2.0-or-later

#include "kokkos_atoms.h"

#include "placement/device_mapping.h"

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "kokkos.h"
#include "kokkos_type.h"
#include "lammps.h"
#include "neigh_list_kokkos.h"
#include "neigh_request.h"
#include "neighbor.h"
#include "pair.h"

#include <type_traits>
#include <vector>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

using Space = LMPDeviceType::memory_space;

constexpr bool ON_HOST =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Space>::accessible;

class Atoms : public KokkosAtoms {
 public:
  explicit Atoms(LAMMPS *lmp) : lmp(lmp) {}

  std::string name() const override
  {
    return fmt::format("KOKKOS {}.{}.{} on {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100,
                       KOKKOS_VERSION % 100, LMPDeviceType::name());
  }

  int gpu() const override
  {
#ifdef KOKKOS_ENABLE_CUDA
    return LMPDeviceType().cuda_device();
#else
    return pwmlff::CPU;
#endif
  }

  bool has_rows() const override
  {
    return are_rows<decltype(lmp->atomKK->k_x.template view<LMPDeviceType>())>() &&
           are_rows<decltype(lmp->atomKK->k_f.template view<LMPDeviceType>())>();
  }

  double *positions() override
  {
    lmp->atomKK->sync(Device, X_MASK);
    LMPDeviceType().fence("pair style pwmlff reads positions");
    return rows_of(lmp->atomKK->k_x.template view<LMPDeviceType>());
  }

  double *forces() override
  {
    lmp->atomKK->sync(Device, F_MASK);
    LMPDeviceType().fence("pair style pwmlff adds forces");
    return rows_of(lmp->atomKK->k_f.template view<LMPDeviceType>());
  }

  void forces_changed() override { lmp->atomKK->modified(Device, F_MASK); }

  void to_host() override { lmp->atomKK->sync(Host, ALL_MASK); }

  void names_to_host() override { lmp->atomKK->sync(Host, TYPE_MASK | TAG_MASK | MASK_MASK); }

  void announce(Pair *pair) const override
  {
    pair->kokkosable = 1;
    pair->datamask_read = ALL_MASK & ~V_MASK;
    pair->datamask_modify = F_MASK | ENERGY_MASK | VIRIAL_MASK;
  }

  void forces_from_host() override
  {
    lmp->atomKK->modified(Host, F_MASK);
    lmp->atomKK->sync(Device, F_MASK);
  }

  void take_list(Pair *pair) override
  {
    if constexpr (ON_HOST) lmp->neighbor->find_request(pair)->set_kokkos_device(1);
  }

  void show_list(NeighList *list, pwmlff::models::LocalAtoms &atoms) override
  {
    if constexpr (ON_HOST) {
      if (!list->kokkos) return;
      const auto *const made = static_cast<NeighListKokkos<LMPDeviceType> *>(list);
      const auto &rows = made->d_neighbors;
      first.resize(rows.extent(0));
      for (std::size_t i = 0; i < first.size(); ++i) first[i] = &rows(i, 0);
      atoms.ilist = made->d_ilist.data();
      atoms.numneigh = made->d_numneigh.data();
      atoms.firstneigh = first.data();
    }
  }

 private:
  /// A KOKKOS may keep numbers of single precision, or the x of all atoms before their y.
  template <class View> static constexpr bool are_rows()
  {
    return std::is_same_v<typename View::value_type, double> &&
           std::is_same_v<typename View::array_layout, Kokkos::LayoutRight>;
  }

  template <class View> static double *rows_of(const View &view)
  {
    if constexpr (are_rows<View>()) return view.data();
    else return nullptr;
  }

  LAMMPS *const lmp;
  std::vector<const int *> first;    // [nlocal + nghost] neighbors of an atom
};

}    // namespace

std::unique_ptr<KokkosAtoms> KokkosAtoms::make(LAMMPS *lmp, std::string &absent)
{
  if (lmp->kokkos && lmp->kokkos->kokkos_exists) return std::make_unique<Atoms>(lmp);
  absent = "lmp runs without KOKKOS; its option '-k on' turns it on";
  return nullptr;
}

}    // namespace pair_pwmlff
