# Options for GPU kernels. They need nvcc, but neither a GPU nor a torch with CUDA: the runtime is linked
# statically, and torch is reached through its device-generic interfaces.
#
# Output: PWMLFF_HAVE_CUDA, PWMLFF_CUDA_COMPILER_VERSION (empty without), PWMLFF_NO_CUDA (why there are none; empty
#         where there are)

set(PWMLFF_CUDA AUTO CACHE STRING "GPU kernels: AUTO (where an nvcc is found that compiles them), ON or OFF")
set_property(CACHE PWMLFF_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PWMLFF_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
    "GPU architectures to compile for; the last one also as PTX for newer ones")

set(PWMLFF_NO_CUDA "")
set(PWMLFF_CUDA_COMPILER_VERSION "")
if(PWMLFF_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(PWMLFF_NO_CUDA "no nvcc that works was found when it was compiled")
  endif()
elseif(NOT PWMLFF_CUDA)
  set(PWMLFF_NO_CUDA "they were switched off when it was compiled, PWMLFF_CUDA=${PWMLFF_CUDA}")
endif()

if(NOT PWMLFF_NO_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${PWMLFF_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(PWMLFF_CUDA_COMPILES OFF)
  if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    include(CheckSourceCompiles)
    check_source_compiles(CUDA "
      #include <concepts>
      template <std::integral T> __global__ void twice(T *x) { *x *= 2; }
      int main() { twice<int><<<1, 1>>>(nullptr); return 0; }" PWMLFF_NVCC_COMPILES_CXX20)
    set(PWMLFF_CUDA_COMPILES ${PWMLFF_NVCC_COMPILES_CXX20})
  endif()
  if(NOT PWMLFF_CUDA_COMPILES)
    set(PWMLFF_NO_CUDA
        "nvcc ${CMAKE_CUDA_COMPILER_VERSION} does not compile C++20 with ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
    if(NOT PWMLFF_CUDA STREQUAL "AUTO")
      message(FATAL_ERROR "GPU kernels: ${PWMLFF_NO_CUDA}; take CUDA 12 or newer and a compiler that it supports "
                          "(CMAKE_CUDA_HOST_COMPILER), or PWMLFF_CUDA=OFF. See CMakeFiles/CMakeConfigureLog.yaml.")
    endif()
  endif()
endif()

if(PWMLFF_NO_CUDA)
  set(PWMLFF_HAVE_CUDA OFF)
  message(STATUS "GPU kernels: none, ${PWMLFF_NO_CUDA}")
else()
  set(PWMLFF_HAVE_CUDA ON)
  set(PWMLFF_CUDA_COMPILER_VERSION ${CMAKE_CUDA_COMPILER_VERSION})
  message(STATUS "GPU kernels: CUDA ${PWMLFF_CUDA_COMPILER_VERSION} for ${PWMLFF_CUDA_ARCHITECTURES}")
endif()
