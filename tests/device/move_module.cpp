// SPDX-License-Identifier: GPL-2.0-or-later

// Moves a module to the device "meta", which stands for any other device, and prints where the
// tensors of the copy and of the original are.
//
//   move_module file.pt

#include "models/model_file.h"
#include "models/scripted.h"

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
  const pwmlff::models::ModelFile file(argv[1], contents.str());
  pwmlff::models::Scripted original(argv[1], file.module());
  const pwmlff::models::Scripted copy = original.copy_to(at::kMeta);
  print("copy", "", copy.module()._ivalue());
  print("original", "", original.module()._ivalue());

  const at::Tensor in = at::arange(3.0, at::kDouble);
  const c10::IValue out = original.call("forward", {original.upload(0, in)});
  std::cout << "result " << original.download(out, "y", {3}).sum().item<double>() << "\n";
  std::cout << "cuda: " << pwmlff::models::open_torch_cuda() << "\n";
  try {
    original.download(out, "y", {4});
  } catch (const std::exception &error) {
    std::cout << "error: " << error.what() << "\n";
  }
  return 0;
}
