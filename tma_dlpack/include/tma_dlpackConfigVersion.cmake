# The version is the version of the headers. The headers satisfy a request for an earlier version
# with the same major version. If the request has a range of versions, the range must include the
# version of the headers.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/tma_dlpack_tables.h" line REGEX "#define TMA_DLPACK_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+$" number "${line}")
math(EXPR major "${number} / 10000")
math(EXPR minor "${number} / 100 % 100")
math(EXPR patch "${number} % 100")
set(PACKAGE_VERSION "${major}.${minor}.${patch}")
if(PACKAGE_FIND_VERSION_MAJOR EQUAL major AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if((PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "INCLUDE" AND PACKAGE_VERSION VERSION_GREATER PACKAGE_FIND_VERSION_MAX)
   OR (PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "EXCLUDE" AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION_MAX))
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
