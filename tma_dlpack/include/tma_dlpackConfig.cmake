# find_package(tma_dlpack) defines the target tma_dlpack::headers, and tma_dlpack_INCLUDE_DIR, which
# is the folder of the headers. To find this file, CMake needs the file's folder in the variable
# tma_dlpack_DIR or tma_dlpack_ROOT. `tma-dlpack include` prints this folder. If [build-system] of a
# project requires tma_dlpack, scikit-build-core sets tma_dlpack_ROOT.
set(tma_dlpack_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}")
if(NOT TARGET tma_dlpack::headers)
  add_library(tma_dlpack::headers INTERFACE IMPORTED)
  set_target_properties(tma_dlpack::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${tma_dlpack_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}") # tma_dlpack_make.hpp loads libcuda with dlopen
endif()
