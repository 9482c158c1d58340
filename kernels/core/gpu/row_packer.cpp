// SPDX-License-Identifier: GPL-2.0-or-later

#include "row_packer.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

namespace pwmlff {

std::size_t RowPacker::buffer_width(const ExchangedRows &rows)
{
  const std::size_t size = rows.rows.index() == 0 ? sizeof(double) : sizeof(float);
  return (rows.width * size + sizeof(double) - 1) / sizeof(double);
}

void RowPacker::take(std::vector<int> row_of_atom_)
{
  row_of_atom = std::move(row_of_atom_);
  if (there) there->current = false;
}

RowPacker::OnDevice &RowPacker::on_device(const std::shared_ptr<Device> &device)
{
  if (!there || there->device != device) there = std::make_unique<OnDevice>(device);
  if (!there->current) there->row_of_atom.assign(row_of_atom);
  there->current = true;
  return *there;
}

/// Call work with the kernel for the type of the rows.
template <class Work>
static void with_kernel(RowMove move, const ExchangedRows &rows, const AtomsToMove &atoms,
                        const int *row_of_atom, double *buffer, const Work &work)
{
  const auto of_type = [&](auto *values) {
    using T = std::remove_pointer_t<decltype(values)>;
    const std::size_t buffer_width = RowPacker::buffer_width(rows) * (sizeof(double) / sizeof(T));
    work(MoveRows<T>{move, row_of_atom, atoms.atoms, atoms.first,
                     static_cast<std::int64_t>(rows.width), static_cast<std::int64_t>(buffer_width),
                     values, reinterpret_cast<T *>(buffer)});
  };
  std::visit(of_type, rows.rows);
}

void RowPacker::move(RowMove move, const ExchangedRows &rows, const AtomsToMove &atoms,
                     double *buffer)
{
  if (!rows.device) {
    with_kernel(move, rows, atoms, row_of_atom.data(), buffer, [&](const auto &kernel) {
      const HostTeam alone(nullptr);
      for (int item = 0; item < atoms.n; ++item) kernel(alone, item);
    });
    return;
  }
  OnDevice &to = on_device(rows.device);
  AtomsToMove atoms_there = atoms;
  if (atoms.atoms) {
    to.atoms.assign(atoms.atoms, atoms.n);
    atoms_there.atoms = to.atoms.get();
  }
  const std::size_t size = atoms.n * buffer_width(rows);
  to.buffer.reserve(size);
  if (move != RowMove::pack) to.buffer.assign(buffer, size);
  move_there(move, rows, atoms_there, to.buffer.get());
  if (move == RowMove::pack) to.buffer.download(buffer, size);
  to.device->synchronize();
}

void RowPacker::move_there(RowMove move, const ExchangedRows &rows, const AtomsToMove &atoms,
                           double *buffer)
{
  const OnDevice &to = on_device(rows.device);
  with_kernel(move, rows, atoms, to.row_of_atom.get(), buffer,
              [&](const auto &kernel) { to.device->run(atoms.n, kernel); });
}

}    // namespace pwmlff
