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
if(MILLRACE_FUZZ)
  target_compile_definitions(millrace_flags INTERFACE FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
  target_compile_options(millrace_flags INTERFACE -fsanitize=fuzzer-no-link)  # coverage, for the fuzzer to see
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

# These files are compiled without ThreadSanitizer.
function(millrace_without_tsan)
  if(MILLRACE_SANITIZE STREQUAL "thread")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread")
  endif()
endfunction()

# millrace_folder(NAME DEPS ...): the library `NAME` of this folder, its tests `NAME_test`, its benchmarks.
# DIRS: further folders that belong to the same library. GRPC_DEPS: its files *_grpc.cc are a second library,
# `NAME_grpc`, that links these as well, their tests a second binary: so `NAME` itself needs no gRPC. They go without
# ThreadSanitizer, which sees neither gRPC's locks nor the layout of its types; their tests are labelled so.
function(millrace_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;DIRS;GRPC_DEPS" ${ARGN})
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
  set(grpc_sources ${sources})
  set(grpc_tests ${tests})
  list(FILTER grpc_sources INCLUDE REGEX "_grpc\\.cc$")
  list(FILTER grpc_tests INCLUDE REGEX "_grpc_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_grpc\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_grpc_test\\.cc$")
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
  if(grpc_sources)
    add_library(${name}_grpc STATIC ${grpc_sources})
    target_link_libraries(${name}_grpc PUBLIC ${name} ${ARG_GRPC_DEPS})
    millrace_without_tsan(${grpc_sources})
  endif()
  if(MILLRACE_TESTS AND grpc_tests)
    add_executable(${name}_grpc_test ${grpc_tests})
    target_link_libraries(${name}_grpc_test PRIVATE ${name}_grpc GTest::gmock GTest::gtest_main)
    millrace_without_tsan(${grpc_tests})
    gtest_discover_tests(${name}_grpc_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300 LABELS notsan)
  endif()
endfunction()
