// SPDX-License-Identifier: GPL-2.0-or-later

#include "kokkos_atoms.h"

#include "pair_pwmlff.h"

#include "placement/device_mapping.h"

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "info.h"
#include "kokkos.h"
#include "kokkos_base.h"
#include "kokkos_type.h"
#include "lammps.h"
#include "neigh_list_kokkos.h"
#include "neigh_request.h"
#include "neighbor.h"

#include <type_traits>
#include <utility>
#include <vector>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

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

  void all_to_host() override { lmp->atomKK->sync(Host, ALL_MASK); }
  void to_host() override { lmp->atomKK->sync(Host, ALL_BUT_VELOCITIES); }
  void names_to_host() override { lmp->atomKK->sync(Host, TYPE_MASK | TAG_MASK | MASK_MASK); }

  void announce(Pair *pair) const override
  {
    pair->kokkosable = 1;
    pair->datamask_read = ALL_BUT_VELOCITIES;
    pair->datamask_modify = F_MASK | ENERGY_MASK | VIRIAL_MASK;
  }

  void forces_from_host() override
  {
    lmp->atomKK->modified(Host, F_MASK);
    lmp->atomKK->sync(Device, F_MASK);
  }

  void charges_to_host() override { lmp->atomKK->sync(Host, Q_MASK); }
  void charges_changed() override { lmp->atomKK->modified(Host, Q_MASK); }

  void take_list(Pair *pair) override { lmp->neighbor->find_request(pair)->set_kokkos_device(1); }

  void show_list(NeighList *list, pwmlff::models::LocalAtoms &atoms) override
  {
    if (!list->kokkos) return;
    const auto *const made = static_cast<NeighListKokkos<LMPDeviceType> *>(list);
    ilist = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), made->d_ilist);
    numneigh = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), made->d_numneigh);
    neighbors = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), made->d_neighbors);
    first.assign(neighbors.extent(0), nullptr);
    if (neighbors.stride(1) == 1) {
      for (std::size_t i = 0; i < first.size(); ++i)
        first[i] = neighbors.data() + i * neighbors.stride(0);
    } else {    // those of an atom are far from each other
      compact.resize(first.size());
      for (int n = 0; n < list->inum + list->gnum; ++n) {
        const int i = ilist(n);
        compact[i].clear();
        for (int k = 0; k < numneigh(i); ++k) compact[i].push_back(neighbors(i, k));
        first[i] = compact[i].data();
      }
    }
    atoms.ilist = ilist.data();
    atoms.numneigh = numneigh.data();
    atoms.firstneigh = first.data();
  }

 private:
  static constexpr auto ALL_BUT_VELOCITIES = ALL_MASK & ~V_MASK;

  /// A KOKKOS may keep numbers of single precision, or the x of all atoms before their y.
  template <class Reference> static constexpr bool are_rows()
  {
    using View = std::remove_cvref_t<Reference>;
    return std::is_same_v<typename View::value_type, double> &&
           std::is_same_v<typename View::array_layout, Kokkos::LayoutRight>;
  }

  template <class View> static double *rows_of(const View &view)
  {
    if constexpr (are_rows<View>()) return view.data();
    else return nullptr;
  }

  template <class View>
  using OnHost =
      decltype(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), std::declval<View>()));
  using List = NeighListKokkos<LMPDeviceType>;

  LAMMPS *const lmp;
  OnHost<decltype(List::d_ilist)> ilist;
  OnHost<decltype(List::d_numneigh)> numneigh;
  OnHost<decltype(List::d_neighbors)> neighbors;
  std::vector<std::vector<int>> compact;    // [nlocal + nghost] where they are not rows
  std::vector<const int *> first;           // [nlocal + nghost] neighbors of an atom
};

/// A buffer of KOKKOS, which releases of LAMMPS call by different names.
template <class Result, class Base, class A, class B, class Buffer>
Buffer last_of(Result (Base::*)(A, B, Buffer));
using Buffer = std::remove_reference_t<decltype(last_of(&KokkosBase::unpack_forward_comm_kokkos))>;

template <class Views> auto *on_device(const Views &views)
{
  return views.template view<LMPDeviceType>().data();
}

/// Of rows in memory of the device, those that other ranks want go into buffers there.
class PairPWMLFFKokkos : public PairPWMLFF, public KokkosBase {
 public:
  using PairPWMLFF::PairPWMLFF;

  int pack_forward_comm_kokkos(int n, DAT::tdual_int_1d list, Buffer &buffer, int /*pbc_flag*/,
                               int * /*pbc*/) override
  {
    return move(pwmlff::RowMove::pack, {on_device(list), 0, n}, buffer);
  }
  void unpack_forward_comm_kokkos(int n, int first, Buffer &buffer) override
  {
    move(pwmlff::RowMove::set, {nullptr, first, n}, buffer);
  }
  int pack_reverse_comm_kokkos(int n, int first, Buffer &buffer) override
  {
    return move(pwmlff::RowMove::pack, {nullptr, first, n}, buffer);
  }
  void unpack_reverse_comm_kokkos(int n, DAT::tdual_int_1d list, Buffer &buffer) override
  {
    move(pwmlff::RowMove::add, {on_device(list), 0, n}, buffer);
  }

 private:
  int move(pwmlff::RowMove move, const pwmlff::AtomsToMove &atoms, Buffer &buffer)
  {
    return halo.move_there(move, atoms, on_device(buffer));
  }
};

}    // namespace

Pair *make_pair(LAMMPS *lmp, const std::string &style, OpenTorch *open_torch)
{
  return new PairPWMLFFKokkos(lmp, style, open_torch);
}

std::unique_ptr<KokkosAtoms> KokkosAtoms::make(LAMMPS *lmp, std::string &absent)
{
#ifdef KOKKOS_ENABLE_CUDA
  constexpr bool on_gpu = true;
#else
  constexpr bool on_gpu = false;
#endif
  if (!lmp->kokkos || !lmp->kokkos->kokkos_exists)
    absent = "lmp runs without KOKKOS; its option '-k on' turns it on";
  else if (Info::has_accelerator_feature("KOKKOS", "api", "cuda") != on_gpu ||
           !Info::has_accelerator_feature("KOKKOS", "precision", "double"))
    absent = "the plugin was compiled for another device or precision of KOKKOS";
  else return std::make_unique<Atoms>(lmp);
  return nullptr;
}

}    // namespace pair_pwmlff
