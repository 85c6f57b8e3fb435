# Parts of the program vgpu that need no machine, each with its files of src/cli.
function(vgpu_cli_unit_test name)
  vgpu_program_unit_test(cli ${name} USES base SOURCES ${ARGN})
endfunction()

vgpu_cli_unit_test(program_words program_words.c)
