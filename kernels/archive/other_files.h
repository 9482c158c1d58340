// SPDX-License-Identifier: GPL-2.0-or-later

// Model files that are not run here: what they are, by their contents, and what runs them.

#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pwmlff {

struct PickleValue;
class Zip;

/// What to give instead of a file that is nothing else.
extern const char *const EXPECTED_ARCHIVE;

// All texts go on after the name of the file: "is a ...; run it with ...".

/// Of a file that is no zip file.
std::string name_of_other(std::string_view bytes);

/// Of a zip file whose members are not those of a module or of torch.save.
std::string name_of_package(const Zip &zip, const std::string &root);

/// Of what torch.save wrote.
/// @param table  gives its table of objects, a pickle
std::string name_of_saved(const std::function<std::string()> &table);

/// Of a TorchScript module of another program that nothing here converts, by the name of its class;
/// empty for others.
std::string name_of_module(std::string_view class_name);

/// Of a folder.
std::string name_of_folder(const std::string &path);

/// "module.name" of the class of a value of a pickle, if it has one.
std::string class_of(const PickleValue &value);

}    // namespace pwmlff
