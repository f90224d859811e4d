# How every target of the project is made. A folder is one library: its *.cc files, but for *_test.cc (one
# test binary a folder) and *_benchmark.cc (one benchmark binary a folder).
include_guard(GLOBAL)

find_program(MILLRACE_CCACHE ccache)
if(MILLRACE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MILLRACE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MILLRACE_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)

# Floating point is exact by rule: no contraction, so a kernel's bits do not depend on the compiler's mood;
# where a fused multiply-add is meant, the source says so.
add_library(millrace_flags INTERFACE)
target_include_directories(millrace_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(millrace_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-march=${MILLRACE_MARCH} -ffp-contract=off -fno-math-errno -fno-trapping-math
                            -Wall -Wextra -Werror -Wno-psabi>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety -Wno-pass-failed>)
if(MILLRACE_SANITIZE STREQUAL "thread")
  # ThreadSanitizer does not look at vector accesses of 32 bytes: see MILL_SIMD.
  target_compile_options(millrace_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-tree-vectorize -fno-tree-slp-vectorize>)
endif()
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer>)
  if(MILLRACE_SANITIZE MATCHES "undefined")
    target_compile_options(millrace_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
endif()
target_link_libraries(millrace_flags INTERFACE Threads::Threads)

if(MILLRACE_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(MILLRACE_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# millrace_folder(NAME DEPS ...): the library `NAME` of this folder, its tests `NAME_test`, its benchmarks.
# DIRS: further folders that belong to the same library.
function(millrace_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;DIRS" ${ARGN})
  set(globs *.cc)
  foreach(dir ${ARG_DIRS})
    list(APPEND globs ${dir}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  set(tests ${sources})
  set(benches ${sources})
  list(FILTER sources EXCLUDE REGEX "(_(test|benchmark)|/main)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_benchmark\\.cc$")
  if(sources)
    add_library(${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${name} ${scope} millrace_flags ${ARG_DEPS})
  if(MILLRACE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${name} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE MILLRACE_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden")
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
  endif()
  if(MILLRACE_BENCHMARKS AND benches)
    add_executable(${name}_benchmark ${benches})
    target_link_libraries(${name}_benchmark PRIVATE ${name} benchmark::benchmark_main)
  endif()
endfunction()
