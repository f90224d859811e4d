# The CUDA backend: libmillrace_cuda.so, which the program loads when it finds a device. Everything about nvcc is
# here; without MILLRACE_CUDA nothing of it is read.
#
# MILLRACE_CUDA_ARCH: one architecture, as machine code and as PTX from which a driver makes code for later devices.
# 80 runs on Ampere as it is and on everything after it by the driver's compiler; several may be named, each
# lengthens the build.
include_guard(GLOBAL)

set(MILLRACE_CUDA_ARCH "80" CACHE STRING "CUDA architectures, as CMAKE_CUDA_ARCHITECTURES takes them")
set(CMAKE_CUDA_ARCHITECTURES ${MILLRACE_CUDA_ARCH})  # before the language: nvcc 13 refuses CMake's own choice
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(MILLRACE_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT MILLRACE_NVCC)
    message(FATAL_ERROR "MILLRACE_CUDA needs nvcc (CUDA 12.4 or later) on the PATH, in CUDACXX or in /usr/local/cuda/bin")
  endif()
  set(CMAKE_CUDA_COMPILER ${MILLRACE_NVCC})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# The same floating point as on the CPU: no contraction; division and square roots are exact and denormals kept, as
# nvcc does by default. CMake 3.25 knows no C++20 of nvcc and says nothing, hence the flag.
add_library(millrace_cuda_flags INTERFACE)
target_compile_options(millrace_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -fmad=false -lineinfo -Werror=all-warnings
                             -Xcompiler=-Wall,-Wextra,-Werror,-Wno-unknown-pragmas>)
target_link_libraries(millrace_cuda_flags INTERFACE millrace_flags)

function(millrace_cuda_library)
  file(GLOB sources CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/kernels/*/cuda/*.cc ${CMAKE_SOURCE_DIR}/kernels/*/cuda/*.cu)
  add_library(millrace_cuda MODULE ${sources})
  set_target_properties(millrace_cuda PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD_REQUIRED OFF)
  target_compile_definitions(millrace_cuda PRIVATE MILLRACE_CUDA_ARCH_TEXT="${MILLRACE_CUDA_ARCH}")
  target_link_libraries(millrace_cuda PRIVATE
    millrace_cuda_flags CUDA::cudart_static CUDA::cublasLt absl::status absl::statusor absl::strings)
endfunction()
