# Writes OUT when it would differ. Run by the build (version.cmake).
cmake_minimum_required(VERSION 3.22)
set(commit "unknown")
if(GIT AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT "/* made by cmake/build-info.cmake */
#define GEM_BUILD_COMMIT \"${commit}\"
#define GEM_BUILD_COMPILER \"${COMPILER}\"
#define GEM_BUILD_TYPE \"${TYPE}\"
#define GEM_BUILD_SANITIZE \"${SANITIZE}\"
#define GEM_BUILD_SYSTEM \"${SYSTEM}\"
")
