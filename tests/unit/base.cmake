# The own tests of the component base; tests of the components above it cover most of it.
vgpu_unit_test(base_clock_steady base)
vgpu_unit_test(base_futex base)
vgpu_unit_test(base_lock_order base)
vgpu_unit_test(base_assertion base)
