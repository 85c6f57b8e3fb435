# The tests of src/turn/, most of them in virtual time.
foreach(concern file gang holder offer rules shares waiter)
  vgpu_unit_test(turn_${concern} turn)
endforeach()
