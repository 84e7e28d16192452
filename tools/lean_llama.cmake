# Makes the engine's build a third of what it would be (docs/decisions/0004);
# tools/bootstrap.py uses it.
#
# Pass it as CMAKE_PROJECT_llama_cpp_INCLUDE=<absolute path>, the form that acts
# on that one project; CMAKE_PROJECT_INCLUDE acts on every project and recurses.

# What the Python package never loads: llama.cpp's "common" library and the
# third-party code below it. LLAMA_BUILD_COMMON=OFF alone does not help, since
# the package turns it on again.
set(CURTILAGE_SKIPPED_FOLDERS common vendor)

# CMake keeps the command that a function replaces under its name with a "_".
function(add_subdirectory folder)
  if(NOT folder IN_LIST CURTILAGE_SKIPPED_FOLDERS)
    _add_subdirectory(${folder} ${ARGN})
    if(folder STREQUAL "vendor/llama.cpp")
      curtilage_hasten()
    endif()
    return()
  endif()
  message(STATUS "left out: ${folder}")
  # Something later asks for this target by name; an empty one will do.
  if(folder STREQUAL "common" AND NOT TARGET llama-common)
    add_library(llama-common INTERFACE)
  endif()
endfunction()

# All arithmetic of a model is in ggml-cpu, which keeps its -O3. The rest loads
# files, builds graphs and draws tokens: -O1 takes half of -O3's time to compile,
# and answers as fast.
function(curtilage_hasten)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    return()
  endif()
  target_compile_options(ggml-base PRIVATE -O1)
  target_compile_options(llama PRIVATE -O1)
  # ccache takes nothing that uses a precompiled header unless it is configured to be sloppy.
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT GGML_CCACHE_FOUND)
    target_precompile_headers(llama PRIVATE
      "${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp/src/models/models.h"
      <chrono> <fstream> <random> <regex> <sstream> <thread> <unordered_map>)
  endif()
endfunction()
