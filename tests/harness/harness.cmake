# Test programs of the simulated layers (harness.h), and the one function that makes their tests.
add_library(vgpu_test_checks INTERFACE) # the checks alone
target_include_directories(vgpu_test_checks INTERFACE ${CMAKE_CURRENT_LIST_DIR})

add_library(vgpu_test_harness STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/harness.c ${CMAKE_CURRENT_LIST_DIR}/main.c)
target_link_libraries(vgpu_test_harness PUBLIC vgpu_test_checks
  PRIVATE vgpu_warnings vgpu_sanitize)

# vgpu_sim_program(TARGET SOURCES source… [LIBRARIES library…] [INCLUDES directory…]): a program of
# tests, or one that tests use.
function(vgpu_sim_program target)
  cmake_parse_arguments(IT "" "" "SOURCES;LIBRARIES;INCLUDES" ${ARGN})
  add_executable(${target} ${IT_SOURCES})
  target_include_directories(${target} PRIVATE ${IT_INCLUDES})
  target_link_libraries(${target} PRIVATE vgpu_warnings vgpu_sanitize ${IT_LIBRARIES}
    Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# vgpu_sim_test(NAME …): a test NAME with libvgpu.so preloaded over the simulated driver. Its command:
#   PROGRAM target [CASES name…]       those tests of the program, or all of them
#   SCRIPT file [ARGUMENTS argument…]  a script, for which VGPU and VGPU_LIBRARY name the program and
#                                      the library; nothing is preloaded into it
# With SOURCES (and LIBRARIES, INCLUDES) the function makes the program too.
#   ENVIRONMENT variable=value…  more variables, or other values
#   PROPERTIES property value…   more properties, or other values
function(vgpu_sim_test name)
  cmake_parse_arguments(IT "" "PROGRAM;SCRIPT"
    "CASES;ARGUMENTS;SOURCES;LIBRARIES;INCLUDES;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(IT_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: what is ${IT_UNPARSED_ARGUMENTS}?")
  endif()
  if(IT_SOURCES)
    vgpu_sim_program(${IT_PROGRAM} SOURCES ${IT_SOURCES} LIBRARIES ${IT_LIBRARIES}
      INCLUDES ${IT_INCLUDES})
  endif()
  set(environment "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:vgpu_sim_cuda>")
  if(IT_SCRIPT)
    add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/${IT_SCRIPT} ${IT_ARGUMENTS})
    list(APPEND environment "VGPU=$<TARGET_FILE:vgpu>" "VGPU_LIBRARY=$<TARGET_FILE:vgpu_preload>")
  else()
    add_test(NAME ${name} COMMAND ${IT_PROGRAM} ${IT_CASES})
    list(APPEND environment "LD_PRELOAD=$<TARGET_FILE:vgpu_preload>"
      "ONLOOKER=$<TARGET_FILE:memory_onlooker>")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS sim PROCESSORS 2 TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${environment};${IT_ENVIRONMENT}" ${IT_PROPERTIES})
endfunction()

# Unit tests (unit.h).
if(CMOCKA_FOUND)
  add_library(vgpu_test_unit STATIC EXCLUDE_FROM_ALL
    ${CMAKE_CURRENT_LIST_DIR}/unit.c ${CMAKE_CURRENT_LIST_DIR}/unit_main.c)
  target_link_libraries(vgpu_test_unit PUBLIC vgpu_test_checks PkgConfig::CMOCKA
    PRIVATE vgpu_warnings vgpu_sanitize)
endif()

# The harness itself.
add_executable(harness_sample ${CMAKE_CURRENT_LIST_DIR}/selftest/sample.c)
target_link_libraries(harness_sample PRIVATE vgpu_warnings vgpu_sanitize vgpu_test_harness)
if(CMOCKA_FOUND)
  add_executable(harness_unit_sample ${CMAKE_CURRENT_LIST_DIR}/selftest/unit_sample.c)
  target_link_libraries(harness_unit_sample PRIVATE vgpu_warnings vgpu_sanitize vgpu_test_unit)
endif()
add_test(NAME unit.harness COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/selftest/harness.sh)
set_tests_properties(unit.harness PROPERTIES LABELS unit TIMEOUT 60
  ENVIRONMENT
    "SAMPLE=$<TARGET_FILE:harness_sample>;UNIT_SAMPLE=$<$<TARGET_EXISTS:harness_unit_sample>:$<TARGET_FILE:harness_unit_sample>>")
