# Parts of the program vgpu that need no machine, each with its files of src/cli.
function(vgpu_cli_unit_test name)
  vgpu_unit_test(cli_${name} base)
  if(TARGET unit_cli_${name})
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/cli/ OUTPUT_VARIABLE sources)
    target_sources(unit_cli_${name} PRIVATE ${sources})
    target_include_directories(unit_cli_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/cli)
  endif()
endfunction()

vgpu_cli_unit_test(program_words program_words.c)
