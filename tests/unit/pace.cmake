# The tests of src/pace/.
find_package(Threads REQUIRED)
vgpu_unit_test(pace_gate pace)
if(TARGET unit_pace_gate)
  target_link_libraries(unit_pace_gate PRIVATE Threads::Threads)
endif()
