# generated/gem_build.h: what this binary was built from, for records and print-config.
find_package(Git QUIET)
set(GEM_GIT_COMMIT "unknown")
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} describe --always --dirty --abbrev=12
                    OUTPUT_VARIABLE GEM_GIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(WRITE ${PROJECT_BINARY_DIR}/gem_build.h.in "/* made by cmake/version.cmake */
#define GEM_BUILD_COMMIT \"${GEM_GIT_COMMIT}\"
#define GEM_BUILD_COMPILER \"${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}\"
#define GEM_BUILD_TYPE \"${CMAKE_BUILD_TYPE}\"
#define GEM_BUILD_SANITIZE \"${GEM_SANITIZE}\"
#define GEM_BUILD_SYSTEM \"${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}\"
")
configure_file(${PROJECT_BINARY_DIR}/gem_build.h.in ${PROJECT_BINARY_DIR}/generated/gem_build.h COPYONLY)
