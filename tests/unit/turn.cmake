# The tests of src/turn/, most of them in virtual time.
set(turn_concerns file offer rules shares)

# ThreadSanitizer takes minutes for these, and finds nothing: they have one thread.
if(VGPU_SANITIZE STREQUAL "thread")
  list(REMOVE_ITEM turn_concerns rules shares)
endif()

foreach(concern ${turn_concerns})
  vgpu_unit_test(turn_${concern} turn)
endforeach()
