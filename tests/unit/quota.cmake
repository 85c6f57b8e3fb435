# The tests of src/quota/.
foreach(concern table blocks account context pool pool_life export import holding holding_unref mapping small)
  vgpu_unit_test(quota_${concern} quota)
endforeach()
