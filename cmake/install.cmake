# What `cmake --install` puts where: programs, libgem, headers, pkg-config and CMake packages, manual pages,
# shell completion, the download script; and the .deb that CPack makes of them.
include(CMakePackageConfigHelpers)
get_property(programs GLOBAL PROPERTY GEM_PROGRAMS)

install(TARGETS gem_shared gem_static
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/gem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(programs)
    install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(PROGRAMS scripts/fetch-model.sh DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gem)
install(FILES scripts/lib.sh scripts/models.tsv DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gem)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES contrib/gem-serve.service contrib/haproxy-replicas.cfg DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

file(RELATIVE_PATH GEM_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # the package may be moved as a whole
configure_file(cmake/gem.pc.in ${PROJECT_BINARY_DIR}/gem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file(cmake/gemConfig.cmake.in ${PROJECT_BINARY_DIR}/gemConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gem PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gemConfig.cmake ${PROJECT_BINARY_DIR}/gemConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gem)

if(TARGET fak)
    install(DIRECTORY data/native-performance DESTINATION ${CMAKE_INSTALL_DATADIR})
    install(FILES man/fak.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# Manual pages and completion come from the option tables: the programs write them themselves.
set(pages "")
function(gem_page program format file)
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/${file}
        COMMAND ${program} --help-as ${format} > ${PROJECT_BINARY_DIR}/${file} DEPENDS ${program} VERBATIM)
    set(pages ${pages} ${PROJECT_BINARY_DIR}/${file} PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man ${PROJECT_BINARY_DIR}/completion)
foreach(program gem gem-analyze gem-bench gem-decode-attention-profile gem-decode-profile gem-determinism-gate gem-device-info
        gem-host-state gem-kernel-bench gem-long-attention-profile gem-long-prefill-stage-profile gem-long-prefix-ab
        gem-metal-counter-info gem-metal-startup-profile gem-online-merge-check gem-prefill-bench gem-sampler-bench
        gem-swa-state-scan gem-synth-model gem-tokenize)
    if(TARGET ${program} AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
        gem_page(${program} man man/${program}.1)
        gem_page(${program} bash completion/${program})
        gem_page(${program} zsh completion/_${program})
        gem_page(${program} fish completion/${program}.fish)
        install(FILES ${PROJECT_BINARY_DIR}/man/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
        install(FILES ${PROJECT_BINARY_DIR}/completion/${program}
                DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
        install(FILES ${PROJECT_BINARY_DIR}/completion/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
        install(FILES ${PROJECT_BINARY_DIR}/completion/${program}.fish
                DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    endif()
endforeach()
if(pages)
    add_custom_target(gem_pages ALL DEPENDS ${pages})
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gem-inference)
set(CPACK_PACKAGE_CONTACT "the gem authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME gem-inference-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, python3-pip")
set(CPACK_DEBIAN_PACKAGE_CONFLICTS "ruby-rubygems") # it owns /usr/bin/gem
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion")
include(CPack)
