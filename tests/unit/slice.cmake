# The component slice: policies, HAMi's environment, and what comes of both.
vgpu_unit_test(slice_policy slice base)
vgpu_unit_test(slice_environment slice base)
vgpu_unit_test(slice_load slice base)
vgpu_unit_test(slice_visible slice base)
