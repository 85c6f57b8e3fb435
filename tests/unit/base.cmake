# What the base room's own tests are; the most of it is tested by those above it.
vgpu_unit_test(base_steady base)
vgpu_unit_test(base_futex base)
vgpu_unit_test(base_lock_order base)
vgpu_unit_test(base_assertion base)
