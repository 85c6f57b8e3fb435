#include "cuda_abi.h"
#include "layout.h"

const struct layout our_layout[] = {
#include "cuda_types.def"
};
const size_t our_layout_rows = sizeof(our_layout) / sizeof(our_layout[0]);
