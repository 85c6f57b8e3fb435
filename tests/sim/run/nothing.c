/* Preloaded in libvgpu.so's place. */
extern int run_nothing;
int run_nothing = 1;
