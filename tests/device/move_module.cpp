/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Moves a module to the device "meta", which stands for any other device, and prints where the tensors of
// the copy and of the original are.
//
//   move_module file.pt

// One translation unit: torch's headers take most of the time.
#include "pair_pwmlff/model_file.cpp"
#include "pair_pwmlff/scripted.cpp"

#include <fstream>
#include <iostream>

namespace {

void print(const char *which, const std::string &name, const c10::IValue &value)
{
  if (value.isTensor())
    std::cout << which << " " << name << " " << value.toTensor().device() << "\n";
  if (value.isList())
    for (const c10::IValue &element : value.toList()) print(which, name, element);
  if (value.isTuple())
    for (const auto &element : value.toTupleRef().elements()) print(which, name, element);
  if (value.isGenericDict())
    for (const auto &entry : value.toGenericDict()) print(which, name, entry.value());
  if (value.isModule())
    for (const auto &attribute : value.toModule().named_attributes(false))
      print(which, name + "." + attribute.name, attribute.value);
}

}    // namespace

int main(int, char **argv)
{
  std::ifstream stream(argv[1], std::ios::binary);
  std::ostringstream contents;
  contents << stream.rdbuf();
  const pair_pwmlff::ModelFile file(argv[1], contents.str());
  pair_pwmlff::Scripted original(argv[1], file.module());
  const pair_pwmlff::Scripted copy = original.on(at::kMeta);
  print("copy", "", copy.module()._ivalue());
  print("original", "", original.module()._ivalue());

  const at::Tensor in = at::arange(3.0, at::kDouble);
  const c10::IValue out = original.forward({original.upload(0, in)});
  std::cout << "result " << original.download(out, "y", {3}).sum().item<double>() << "\n";
  std::cout << "cuda: " << pair_pwmlff::open_torch_cuda() << "\n";
  try {
    original.download(out, "y", {4});
  } catch (const std::exception &error) {
    std::cout << "error: " << error.what() << "\n";
  }
  return 0;
}
