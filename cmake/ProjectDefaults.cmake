# Compiler settings that all targets share.

# The oldest compilers that were tried. Without this, what fails is a file somewhere in the middle.
foreach(_floor "GNU 11 g++-11" "Clang 14 clang-14")
  string(REPLACE " " ";" _floor ${_floor})
  list(POP_FRONT _floor _compiler _oldest _package)
  if(CMAKE_CXX_COMPILER_ID STREQUAL _compiler AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS _oldest)
    message(FATAL_ERROR "found ${_compiler} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}), expected ${_oldest} or "
                        "newer: install one (apt install ${_package}, dnf install gcc-toolset-12, conda install gxx) and "
                        "name it in the environment variable CXX")
  endif()
endforeach()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_library(pwmlff_warnings INTERFACE)
set(_warnings -Wall -Wextra -Wpedantic)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND _warnings -Wno-restrict)   # false alarm on std::string in GCC 12 (PR 105651)
endif()
target_compile_options(pwmlff_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_warnings}>")

option(PWMLFF_SANITIZE "Compile with the address and undefined behavior sanitizers" OFF)
if(PWMLFF_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all;-g1;-O1>")
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fsanitize=address,undefined>)
endif()

option(PWMLFF_COVERAGE "Count which lines run, for gcov" OFF)
if(PWMLFF_COVERAGE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--coverage;-fprofile-update=atomic>")
  add_link_options($<$<LINK_LANGUAGE:CXX>:--coverage>)
endif()

# Reading headers takes most of the time that most files compile. Sources of a library that are compiled together read them
# once, which halves the time of an installation; OFF compiles one by one, quicker after a change.
option(PWMLFF_UNITY_BUILD "Compile the sources of a library together" ON)
# ARGN: sources that are compiled alone, as they take long themselves or have definitions of their own.
function(pwmlff_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PWMLFF_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 0)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Messages name source files relative to the project, not to the machine that compiled them. (gcov looks for them.)
if(NOT PWMLFF_COVERAGE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
endif()

# Where the compiled libraries go: inside the Python package for pip, else lib/.
if(SKBUILD)
  set(PWMLFF_LIBDIR lib)
else()
  include(GNUInstallDirs)
  set(PWMLFF_LIBDIR ${CMAKE_INSTALL_LIBDIR})
endif()

# Only relative run paths: the environment of the build may be gone when the plugin runs.
# $ORIGIN is <site-packages>/pwmlff/lib, torch lies beside pwmlff.
set(CMAKE_SKIP_BUILD_RPATH OFF)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
