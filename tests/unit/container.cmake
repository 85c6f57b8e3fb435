# The component container: what a slice for containers has on the host, and what a container gets.
vgpu_unit_test(container_make container slice base)
