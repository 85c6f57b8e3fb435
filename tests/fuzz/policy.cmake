# Built with -DVGPU_FUZZ=ON, by clang; run as long as one likes, for a few seconds by CTest.
if(VGPU_FUZZ)
  add_executable(fuzz_policy ${CMAKE_CURRENT_LIST_DIR}/policy.c)
  target_link_libraries(fuzz_policy PRIVATE vgpu_warnings vgpu_sanitize vgpu_slice vgpu_base)
  target_compile_options(fuzz_policy PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_policy PRIVATE -fsanitize=fuzzer)
  add_test(NAME fuzz.policy COMMAND fuzz_policy -max_total_time=10 -max_len=8192)
  set_tests_properties(fuzz.policy PROPERTIES LABELS fuzz TIMEOUT 60)
endif()
