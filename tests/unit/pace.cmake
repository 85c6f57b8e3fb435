# The tests of src/pace/.
find_package(Threads REQUIRED)

# Over a device that is reckoned, in time that is: nothing that they see depends on the machine.
set(pace_in_virtual_time
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
  threads
  throttle
  turn_programs
  sync)

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
