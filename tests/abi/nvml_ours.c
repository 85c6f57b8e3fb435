#include "layout.h"
#include "nvml_abi.h"

const struct layout our_layout[] = {
#include "nvml_types.def"
};
const size_t our_layout_rows = sizeof(our_layout) / sizeof(our_layout[0]);
