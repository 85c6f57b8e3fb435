# The tests of src/quota/.
foreach(concern table blocks account context)
  vgpu_unit_test(quota_${concern} quota)
endforeach()
