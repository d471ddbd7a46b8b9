# generated/gem_build.h: what this binary was built from, for records and print-config. Looked up at
# every build: a record must not name the commit that the folder was configured at.
find_package(Git QUIET)
add_custom_target(gem_build_info
    COMMAND ${CMAKE_COMMAND} "-DGIT=${GIT_EXECUTABLE}" "-DSOURCE=${PROJECT_SOURCE_DIR}"
            "-DOUT=${PROJECT_BINARY_DIR}/generated/gem_build.h"
            "-DCOMPILER=${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}"
            "-DTYPE=${CMAKE_BUILD_TYPE}" "-DSANITIZE=${GEM_SANITIZE}"
            "-DSYSTEM=${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}"
            -P ${PROJECT_SOURCE_DIR}/cmake/build-info.cmake
    BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/gem_build.h
    COMMENT "" VERBATIM)
