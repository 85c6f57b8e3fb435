# Parts of vgpud, each with its files of src/vgpud.
function(vgpu_vgpud_unit_test name)
  vgpu_program_unit_test(vgpud ${name} USES overview base SOURCES ${ARGN})
endfunction()

vgpu_vgpud_unit_test(secrets secrets.c)
vgpu_vgpud_unit_test(prom prom.c text.c)
if(TARGET unit_vgpud_prom)
  target_link_options(unit_vgpud_prom PRIVATE LINKER:--wrap=malloc)
endif()
