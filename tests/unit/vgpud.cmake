# Parts of vgpud, each with its files of src/vgpud.
function(vgpu_vgpud_unit_test name)
  vgpu_unit_test(vgpud_${name} overview base)
  if(TARGET unit_vgpud_${name})
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/vgpud/ OUTPUT_VARIABLE sources)
    target_sources(unit_vgpud_${name} PRIVATE ${sources})
    target_include_directories(unit_vgpud_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/vgpud)
  endif()
endfunction()

vgpu_vgpud_unit_test(secrets secrets.c)
