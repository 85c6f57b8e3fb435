/* refused: cuInit is refused, and stays so; what else is called says that something is wrong. */
#include "driver.h"
#include "ways.h"

int main(void)
{
	CUdeviceptr address = 0;
	CUresult result;

	find_driver(by_handle);
	for (int i = 0; i < 3; i++) {
		result = found.cuInit(0);
		CHECK_SAYING(result == CUDA_ERROR_NOT_PERMITTED, "cuInit says %d", result);
	}
	result = found.cuMemAlloc_v2(&address, SMALL_BYTES);
	CHECK_SAYING(result != CUDA_SUCCESS, "cuMemAlloc_v2 succeeds");
	result = found.cuMemAlloc_v2(&address, LARGE_BYTES);
	CHECK_SAYING(result != CUDA_SUCCESS, "cuMemAlloc_v2 succeeds");
	return 0;
}
