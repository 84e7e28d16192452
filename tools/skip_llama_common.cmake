# Leaves out what the Python package never loads, more than half of the build:
# llama.cpp's "common" library and the third-party code below it.
#
# Pass it as CMAKE_PROJECT_llama_cpp_INCLUDE=<absolute path>, the form that acts
# on that one project; CMAKE_PROJECT_INCLUDE acts on every project and recurses.
# LLAMA_BUILD_COMMON=OFF alone does not help, since the package turns it on again.

set(CURTILAGE_SKIPPED_FOLDERS common vendor)

# CMake keeps the command that a function replaces under its name with a "_".
function(add_subdirectory folder)
  if(NOT folder IN_LIST CURTILAGE_SKIPPED_FOLDERS)
    _add_subdirectory(${folder} ${ARGN})
    return()
  endif()
  message(STATUS "left out: ${folder}")
  # Something later asks for this target by name; an empty one will do.
  if(folder STREQUAL "common" AND NOT TARGET llama-common)
    add_library(llama-common INTERFACE)
  endif()
endfunction()
