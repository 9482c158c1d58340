// SPDX-License-Identifier: GPL-2.0-or-later

#include "family.h"

#include <stdexcept>

namespace pwmlff {

Network::~Network() = default;

std::unique_ptr<FusedEngine> Network::plain() const { return nullptr; }

Precision precision_of(const std::string &name)
{
  if (name == "exact") return Precision::exact;
  if (name == "double") return Precision::tables;
  if (name == "mixed") return Precision::mixed;
  throw std::invalid_argument("precision is '" + name + "', expected exact, double or mixed");
}

}    // namespace pwmlff
