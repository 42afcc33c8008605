# What `cmake --install` gives beside what the parts install themselves, and what of it a wheel and a rock have.
#
#   <lib>/moonferry/          the package: library, Lua and Python files, headers, the program, laid out as a wheel's is
#   <lib>/libmoonferry.so*    links to the library in the package, beside which bridge and Python module are found
#   <include>/moonferry/      the headers, in a folder of their own, because the dlpack.h among them may not replace
#                             another one
#   <lib>/cmake/Moonferry/, <lib>/pkgconfig/
#
# Everything is relative, so that the whole may be moved. Sets install_package for all parts.
include(GNUInstallDirs)
set(headers ${public_header} ${PROJECT_SOURCE_DIR}/bindings/python/moonferry_python.h
  ${PROJECT_SOURCE_DIR}/bindings/lua/moonferry_lua.h ${PROJECT_SOURCE_DIR}/runtime/include/moonferry_vulkan.h
  ${PROJECT_SOURCE_DIR}/runtime/include/moonferry_vulkan_stream.h)

# install_link(FOLDER NAME TARGET): a link that is installed as one.
function(install_link folder name target)
  set(made ${PROJECT_BINARY_DIR}/links/${name})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/links)
  file(CREATE_LINK ${target} ${made} SYMBOLIC)
  install(FILES ${made} DESTINATION ${folder})
endfunction()

# A rock's go where luarocks says, and there are no others.
if(MOONFERRY_ROCK_LUADIR)
  install(TARGETS moonferry LIBRARY DESTINATION ${MOONFERRY_ROCK_LIBDIR} NAMELINK_SKIP)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/moonferry DESTINATION ${MOONFERRY_ROCK_LUADIR}
    FILES_MATCHING PATTERN "*.lua" PATTERN program EXCLUDE)
  return()
endif()

# A wheel's files go where pip wants them, and a wheel cannot hold links.
if(SKBUILD)
  set(install_package moonferry)
  install(TARGETS moonferry LIBRARY DESTINATION ${install_package} NAMELINK_SKIP)
else()
  include(CMakePackageConfigHelpers)
  set(install_package ${CMAKE_INSTALL_LIBDIR}/moonferry)
  set(install_headers ${CMAKE_INSTALL_INCLUDEDIR}/moonferry)
  set(install_config ${CMAKE_INSTALL_LIBDIR}/cmake/Moonferry)
  install(TARGETS moonferry EXPORT MoonferryTargets LIBRARY DESTINATION ${install_package} NAMELINK_SKIP
    INCLUDES DESTINATION ${install_headers})
  install(EXPORT MoonferryTargets NAMESPACE Moonferry:: DESTINATION ${install_config})
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/MoonferryConfig.cmake.in
    ${PROJECT_BINARY_DIR}/config/MoonferryConfig.cmake INSTALL_DESTINATION ${install_config}
    PATH_VARS install_package)
  # Before 1.0 a minor version may change what programs were compiled for.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/config/MoonferryConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/config/MoonferryConfig.cmake
    ${PROJECT_BINARY_DIR}/config/MoonferryConfigVersion.cmake DESTINATION ${install_config})

  file(RELATIVE_PATH prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" prefix_from_pkgconfig ${prefix_from_pkgconfig})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/moonferry.pc.in ${PROJECT_BINARY_DIR}/config/moonferry.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/config/moonferry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  install_link(${CMAKE_INSTALL_LIBDIR} libmoonferry.so.0 moonferry/libmoonferry.so.0)
  install_link(${CMAKE_INSTALL_LIBDIR} libmoonferry.so libmoonferry.so.0)
  install(FILES ${headers} DESTINATION ${install_headers})
  install(FILES ${dlpack_include}/dlpack/dlpack.h DESTINATION ${install_headers}/dlpack)
endif()

install(FILES ${headers} DESTINATION ${install_package}/include)
install(FILES ${dlpack_include}/dlpack/dlpack.h DESTINATION ${install_package}/include/dlpack)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/moonferry DESTINATION ${install_package}/lua
  FILES_MATCHING PATTERN "*.lua")
