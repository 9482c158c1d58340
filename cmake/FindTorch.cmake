# Find the C++ part of the torch Python package.
#
# torch's own CMake config looks for every optional component of the build that made it (CUDA,
# oneDNN, ...) and puts absolute run paths into what links it. Two shared libraries and the headers
# are all that is needed here, whether torch has CUDA or not.
#
# Input:   Python_EXECUTABLE, or Torch_DIR_HINT (the folder that holds include/ and lib/)
# Output:  Torch_FOUND, Torch_VERSION (release, without the local part), Torch_FOLDER, Torch::Torch

if(NOT Torch_FOLDER)
  if(Torch_DIR_HINT)
    set(Torch_FOLDER ${Torch_DIR_HINT})
  else()
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE Torch_FOLDER OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

find_path(Torch_INCLUDE_DIR torch/script.h PATHS ${Torch_FOLDER}/include NO_DEFAULT_PATH)
find_library(Torch_CPU_LIBRARY torch_cpu PATHS ${Torch_FOLDER}/lib NO_DEFAULT_PATH)
find_library(Torch_C10_LIBRARY c10 PATHS ${Torch_FOLDER}/lib NO_DEFAULT_PATH)

if(EXISTS ${Torch_FOLDER}/version.py)
  file(STRINGS ${Torch_FOLDER}/version.py _line REGEX "^__version__ = ")
elseif(EXISTS ${Torch_FOLDER}/build-version)
  file(STRINGS ${Torch_FOLDER}/build-version _line)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${_line}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Torch
  REQUIRED_VARS Torch_CPU_LIBRARY Torch_C10_LIBRARY Torch_INCLUDE_DIR
  VERSION_VAR Torch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE
    "Supported are torch ${PWMLFF_TORCH_OLDEST} to ${PWMLFF_TORCH_NEWEST}, found '${Torch_VERSION}'. Install one of them into the Python that CMake uses (${Python_EXECUTABLE}).")
mark_as_advanced(Torch_INCLUDE_DIR Torch_CPU_LIBRARY Torch_C10_LIBRARY)

if(Torch_FOUND AND NOT TARGET Torch::Torch)
  add_library(Torch::c10 UNKNOWN IMPORTED)
  set_target_properties(Torch::c10 PROPERTIES IMPORTED_LOCATION ${Torch_C10_LIBRARY})
  add_library(Torch::Torch UNKNOWN IMPORTED)
  set_target_properties(
    Torch::Torch PROPERTIES
    IMPORTED_LOCATION ${Torch_CPU_LIBRARY}
    INTERFACE_LINK_LIBRARIES Torch::c10
    INTERFACE_INCLUDE_DIRECTORIES
      "${Torch_INCLUDE_DIR};${Torch_INCLUDE_DIR}/torch/csrc/api/include")
endif()
