# Options for GPU kernels. They need nvcc, but neither a GPU nor a torch with CUDA: the runtime is linked
# statically, and torch is reached through its device-generic interfaces.
#
# Output: PWMLFF_HAVE_CUDA, PWMLFF_CUDA_COMPILER_VERSION (empty without)

set(PWMLFF_CUDA AUTO CACHE STRING "GPU kernels: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE PWMLFF_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PWMLFF_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
    "GPU architectures to compile for; the last one also as PTX for newer ones")

set(PWMLFF_HAVE_CUDA OFF)
if(PWMLFF_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(PWMLFF_HAVE_CUDA ON)
  endif()
elseif(PWMLFF_CUDA)
  set(PWMLFF_HAVE_CUDA ON)
endif()

if(PWMLFF_HAVE_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${PWMLFF_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
endif()
set(PWMLFF_CUDA_COMPILER_VERSION "")
if(PWMLFF_HAVE_CUDA)
  set(PWMLFF_CUDA_COMPILER_VERSION ${CMAKE_CUDA_COMPILER_VERSION})
endif()
message(STATUS "GPU kernels: ${PWMLFF_HAVE_CUDA} (PWMLFF_CUDA=${PWMLFF_CUDA})")
