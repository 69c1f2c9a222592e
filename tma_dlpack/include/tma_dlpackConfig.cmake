# find_package(tma_dlpack): the target tma_dlpack::headers, and its folder in tma_dlpack_INCLUDE_DIR. It is found
# where tma_dlpack_DIR or tma_dlpack_ROOT is what `tma-dlpack include` prints; scikit-build-core sets
# tma_dlpack_ROOT by itself for a project whose [build-system] requires tma_dlpack.
set(tma_dlpack_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}")
if(NOT TARGET tma_dlpack::headers)
  add_library(tma_dlpack::headers INTERFACE IMPORTED)
  set_target_properties(tma_dlpack::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${tma_dlpack_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}") # tma_dlpack_make.hpp finds libcuda by dlopen
endif()
