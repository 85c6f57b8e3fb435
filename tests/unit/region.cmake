# The tests of src/trace/ and src/region/.
vgpu_unit_test(trace region)
foreach(concern layout open files faults watch life guess slot ledger share share_deaths descriptor contention lock check steer exit gang_file)
  vgpu_unit_test(region_${concern} region)
endforeach()
if(TEST unit.region_contention) # the longest under ThreadSanitizer
  set_tests_properties(unit.region_contention PROPERTIES COST 15)
endif()
