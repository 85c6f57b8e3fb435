# The tests of src/pace/.
find_package(Threads REQUIRED)
foreach(concern gate bucket gang member tally costs spans pacer pacer_odd sample gaps waits late lease
    lease_programs threads trace)
  vgpu_unit_test(pace_${concern} pace)
  if(TARGET unit_pace_${concern})
    target_link_libraries(unit_pace_${concern} PRIVATE Threads::Threads)
  endif()
endforeach()

# Over a device that is reckoned, in time that is: nothing that they see depends on the machine.
foreach(concern member pacer pacer_odd sample gaps waits late lease lease_programs threads)
  if(TARGET unit_pace_${concern})
    foreach(function clock_now_ns clock_coarse_ns clock_steady_ns clock_unix_s sys_sleep_ns)
      target_link_options(unit_pace_${concern} PRIVATE LINKER:--wrap=${function})
    endforeach()
  endif()
endforeach()
