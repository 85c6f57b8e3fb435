# For aarch64 on another architecture, by Debian's cross compiler (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross):
# `cmake --preset aarch64`. Libraries beside libc are looked for in VGPU_AARCH64_ROOT alone: a tree with Debian's arm64
# packages unpacked, or nothing. No CMAKE_CROSSCOMPILING_EMULATOR: tests run programs that run others (tests/aarch64.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(triplet aarch64-linux-gnu)
set(CMAKE_C_COMPILER ${triplet}-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet})

set(VGPU_AARCH64_ROOT "" CACHE PATH "Where Debian's arm64 packages of json-c, ncurses and cmocka are unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VGPU_AARCH64_ROOT)
set(CMAKE_FIND_ROOT_PATH /usr/${triplet} ${VGPU_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# pkg-config must not find what this machine has for itself.
set(ENV{PKG_CONFIG_LIBDIR} "${VGPU_AARCH64_ROOT}/usr/lib/${triplet}/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${VGPU_AARCH64_ROOT}")

# ncurses' link is a script, which names a library that lies elsewhere than itself.
if(VGPU_AARCH64_ROOT)
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-L${VGPU_AARCH64_ROOT}/lib/${triplet} -Wl,-rpath-link,${VGPU_AARCH64_ROOT}/lib/${triplet}")
endif()
