# What is installed beside the library and the program, and the demo as a component of its own:
# `cmake --install build --component demo`, or Debian's package vgpu-demo.
set(VGPU_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING
  "Where zsh looks for completions, below the prefix")

install(FILES ${PROJECT_SOURCE_DIR}/include/vgpu_region.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(section 1 5)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.${section})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

file(GLOB completions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/completions/*vgpu*)
foreach(completion ${completions})
  if(completion MATCHES "/vgpu\\.bash$")
    install(FILES ${completion} RENAME vgpu
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  elseif(completion MATCHES "/_vgpu$")
    install(FILES ${completion} DESTINATION ${VGPU_ZSH_DIR})
  endif()
endforeach()

# The demo: the library's directory becomes what the build directory is to demo/demo.sh.
set(home ${CMAKE_INSTALL_LIBDIR}/vgpu)
set(demo COMPONENT demo EXCLUDE_FROM_ALL)
install(TARGETS vgpu_sim_cuda vgpu_sim_nvml LIBRARY DESTINATION ${home}/sim NAMELINK_SKIP ${demo})
# With the links for the linker, so that nvcc -L finds the simulated runtime.
install(TARGETS vgpu_sim_runtime vgpu_sim_runtime_static
  LIBRARY DESTINATION ${home}/sim ${demo}
  ARCHIVE DESTINATION ${home}/sim ${demo})
install(TARGETS demo_hog demo_outside RUNTIME DESTINATION ${home}/demo ${demo})
install(TARGETS bench_shares RUNTIME DESTINATION ${home}/bench ${demo})
install(PROGRAMS demo/demo.sh DESTINATION ${home}/demo ${demo})
install(FILES demo/vgpu-demo.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 ${demo})

# vgpu_install_link(DIR NAME TO): NAME below GNUInstallDirs' DIR, made relative, so that all can be moved.
function(vgpu_install_link dir name to)
  get_filename_component(from ${CMAKE_INSTALL_FULL_${dir}}/${name} DIRECTORY)
  file(RELATIVE_PATH path ${from} ${to})
  get_filename_component(leaf ${name} NAME)
  file(CREATE_LINK ${path} ${CMAKE_CURRENT_BINARY_DIR}/links/${leaf} SYMBOLIC)
  get_filename_component(destination ${CMAKE_INSTALL_${dir}}/${name} DIRECTORY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/links/${leaf} DESTINATION ${destination} ${demo})
endfunction()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/links)
vgpu_install_link(LIBDIR vgpu/vgpu ${CMAKE_INSTALL_FULL_BINDIR}/vgpu)
vgpu_install_link(BINDIR vgpu-demo ${CMAKE_INSTALL_FULL_LIBDIR}/vgpu/demo/demo.sh)
