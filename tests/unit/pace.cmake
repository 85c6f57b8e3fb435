# The tests of src/pace/.
find_package(Threads REQUIRED)

# Over a device that is reckoned, in time that is: nothing that they see depends on the machine.
set(pace_over_fake
  bursts
  by_turn
  gaps
  joint
  other_thread
  overdue
  lease
  lease_programs
  lease_threads
  member
  member_odd
  pacer
  pacer_odd
  peers
  peer_programs
  programs
  rival
  sample
  shared
  stalls
  throttle
  turn_programs
  sync)
set(pace_in_virtual_time ${pace_over_fake} threads) # threads has a device of its own

set(pace_concerns paid bucket costs gang gang_programs gate group holder spans backlog ${pace_in_virtual_time})

foreach(concern ${pace_concerns})
  vgpu_unit_test(pace_${concern} pace)
  if(TARGET unit_pace_${concern})
    target_link_libraries(unit_pace_${concern} PRIVATE Threads::Threads)
  endif()
endforeach()

if(TARGET unit_pace_holder)
  target_link_options(unit_pace_holder PRIVATE LINKER:--wrap=sys_futex_wake)
endif()

# The device, and the clocks and sleeps that the options below put in the place of the components'. A program gets
# pace_many.c with its sys_futex_wait only if the program plays several processes.
if(CMOCKA_FOUND)
  set(pace_fake_sources unit/pace_fake.c unit/pace_many.c unit/shared_device.c)
  add_library(vgpu_test_pace STATIC EXCLUDE_FROM_ALL ${pace_fake_sources})
  target_link_libraries(vgpu_test_pace PUBLIC vgpu_test_unit vgpu_pace_faulty
    PRIVATE vgpu_warnings vgpu_sanitize)
  target_compile_definitions(vgpu_test_pace PRIVATE VGPU_FAULTS)
  if(VGPU_FUZZ) # as for the tests themselves
    set_source_files_properties(${pace_fake_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=fuzzer-no-link)
  endif()
endif()
foreach(concern ${pace_over_fake})
  if(TARGET unit_pace_${concern})
    target_link_libraries(unit_pace_${concern} PRIVATE vgpu_test_pace)
  endif()
endforeach()
foreach(concern ${pace_in_virtual_time})
  if(TARGET unit_pace_${concern})
    foreach(function clock_now_ns clock_coarse_ns clock_steady_ns clock_unix_s sys_sleep_ns)
      target_link_options(unit_pace_${concern} PRIVATE LINKER:--wrap=${function})
    endforeach()
  endif()
endforeach()
foreach(concern by_turn peers peer_programs rival turn_programs)
  if(TARGET unit_pace_${concern})
    target_link_options(unit_pace_${concern} PRIVATE LINKER:--wrap=sys_futex_wait)
  endif()
endforeach()
if(TARGET unit_pace_bucket)
  target_link_options(unit_pace_bucket PRIVATE LINKER:--wrap=clock_steady_ns)
endif()

# Figures over minutes of virtual time, which take the longest. Other tests run the same code, so
# `make check` leaves these out under sanitizers.
foreach(concern by_turn peers peer_programs programs gang_programs turn_programs)
  if(TEST unit.pace_${concern})
    set_tests_properties(unit.pace_${concern} PROPERTIES LABELS "unit;figures" COST 15)
  endif()
endforeach()
