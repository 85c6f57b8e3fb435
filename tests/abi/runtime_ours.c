#include "layout.h"
#include "runtime_abi.h"

const struct layout our_layout[] = {
#include "runtime_types.def"
};
const size_t our_layout_rows = sizeof(our_layout) / sizeof(our_layout[0]);
