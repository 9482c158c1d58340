// SPDX-License-Identifier: GPL-2.0-or-later

// Values of attributes of TorchScript modules, in the forms that they come in.

#ifndef PWMLFF_ATTRIBUTES_H
#define PWMLFF_ATTRIBUTES_H

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace pwmlff::models {

/// A float or an int; nothing where the value is of another type.
inline std::optional<double> number_of(const c10::IValue &value)
{
  if (!value.isDouble() && !value.isInt()) return {};
  return value.toScalar().toDouble();
}

/// A list, a tuple (what a list becomes that is declared Final) or a tensor of integers, likewise.
inline std::optional<std::vector<std::int64_t>> integers_of(const c10::IValue &value)
{
  if (value.isIntList()) return value.toIntVector();
  std::vector<std::int64_t> result;
  if (value.isTuple()) {
    for (const c10::IValue &element : value.toTupleRef().elements()) {
      if (!element.isInt()) return {};
      result.push_back(element.toInt());
    }
    return result;
  }
  if (!value.isTensor() || !at::isIntegralType(value.toTensor().scalar_type(), true)) return {};
  const at::Tensor tensor = value.toTensor().to(at::kCPU, at::kLong).contiguous().flatten();
  const std::int64_t *const first = tensor.const_data_ptr<std::int64_t>();
  result.assign(first, first + tensor.numel());
  return result;
}

/// Slots of each type of a DP from its attribute `sel`. Empty where that holds something else than
/// ntypes numbers from 1 to max_neighbor: files of other programs may, and all types have
/// max_neighbor then.
inline std::vector<int> slots_by_type(const c10::IValue &value, std::size_t ntypes,
                                      std::int64_t max_neighbor)
{
  const auto found = integers_of(value);
  if (!found || found->size() != ntypes) return {};
  for (const std::int64_t slots : *found)
    if (slots < 1 || slots > max_neighbor) return {};
  return {found->begin(), found->end()};
}

}    // namespace pwmlff::models

#endif
