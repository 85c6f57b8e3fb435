# A component is a directory of src/. Its headers are its contract; no other component includes its .c
# files. A component sees its own headers and those of the components that it USES, directly or through
# them, so an include against the arrows of ARCHITECTURE.md does not compile.

add_library(vgpu_warnings INTERFACE)
target_compile_options(vgpu_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wformat=2 -Wvla
  $<$<BOOL:${VGPU_WERROR}>:-Werror>)
target_compile_definitions(vgpu_warnings INTERFACE _GNU_SOURCE)
if(NOT VGPU_ASSERTIONS STREQUAL "")
  set(assertions ${VGPU_ASSERTIONS})
elseif(VGPU_SANITIZE)
  set(assertions 3)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(assertions 2)
else()
  set(assertions 0)
endif()
target_compile_definitions(vgpu_warnings INTERFACE VGPU_ASSERTIONS=${assertions})

# What sanitizer builds add. UBSan is used in trap mode: it needs no runtime.
add_library(vgpu_sanitize INTERFACE)
if(VGPU_SANITIZE STREQUAL "undefined")
  target_compile_options(vgpu_sanitize INTERFACE -fsanitize=undefined -fsanitize-undefined-trap-on-error)
elseif(VGPU_SANITIZE)
  target_compile_options(vgpu_sanitize INTERFACE -fsanitize=${VGPU_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(vgpu_sanitize INTERFACE -fsanitize=${VGPU_SANITIZE})
endif()
if(VGPU_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  target_compile_options(vgpu_warnings INTERFACE -Wno-tsan) # at each fence, which ThreadSanitizer does not see
endif()
if(VGPU_FUZZ) # what UBSan sees is a find, like any other
  target_compile_options(vgpu_sanitize INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()

# vgpu_component(NAME SOURCES file… [USES component…])
# Makes vgpu_NAME, and for the tests vgpu_NAME_faulty: the same sources with VGPU_FAULTS.
function(vgpu_component name)
  cmake_parse_arguments(COMPONENT "" "" "SOURCES;USES" ${ARGN})
  foreach(flavour "" "_faulty")
    set(target vgpu_${name}${flavour})
    add_library(${target} STATIC ${COMPONENT_SOURCES})
    if(flavour OR VGPU_COMPONENTS_ONLY) # then tests have it built, if they use it
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE vgpu_warnings vgpu_sanitize)
    if(flavour)
      target_compile_definitions(${target} PRIVATE VGPU_FAULTS)
    endif()
    foreach(used ${COMPONENT_USES})
      if(TARGET vgpu_${used}${flavour})
        target_link_libraries(${target} PUBLIC vgpu_${used}${flavour})
      else()
        target_link_libraries(${target} PUBLIC vgpu_${used})
      endif()
    endforeach()
  endforeach()
endfunction()
