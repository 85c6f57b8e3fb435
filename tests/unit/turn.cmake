# The tests of src/turn/, most of them in virtual time.
foreach(concern file offer rules shares)
  vgpu_unit_test(turn_${concern} turn)
endforeach()
