// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

#include "../device.h"
#include "../evaluation.h"
#include "../export.h"
#include "move_rows.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pwmlff {

struct AtomsToMove {
  const int *atoms;    // [n], none twice; null: those from first on
  int first, n;
};

/// Moves rows that are in memory of a device or of the host to and from buffers for communication.
/// A buffer holds the numbers of one atom after the other as they are, so that those of float take
/// half of the room.
class PWMLFF_KERNELS_API RowPacker {
 public:
  /// Numbers of float64 that a buffer holds for an atom.
  static std::size_t buffer_width(const ExchangedRows &rows);

  /// @param row_of_atom [natoms] until the next call
  void take(std::vector<int> row_of_atom);

  /// Move rows between host or device and a buffer of the host. Done when it returns.
  void move(RowMove move, const ExchangedRows &rows, const AtomsToMove &atoms, double *buffer);
  /// The same with atoms and buffer in memory of the device of the rows. Not waited for.
  void move_there(RowMove move, const ExchangedRows &rows, const AtomsToMove &atoms,
                  double *buffer);

 private:
  struct OnDevice {
    explicit OnDevice(const std::shared_ptr<Device> &device) :
        device(device), row_of_atom(device), atoms(device), buffer(device)
    {
    }
    std::shared_ptr<Device> device;
    DeviceArray<int> row_of_atom, atoms;
    DeviceArray<double> buffer;
    bool current = false;    // it has the rows of atoms
  };
  OnDevice &on_device(const std::shared_ptr<Device> &device);

  std::vector<int> row_of_atom;
  std::unique_ptr<OnDevice> there;
};

}    // namespace pwmlff
