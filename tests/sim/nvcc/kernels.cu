// What nvcc makes of this is described by load.c, and compared with EXPECTED in run.sh.
__device__ int counters[5];
__device__ int started = 7;
__constant__ float weights[9] = {1.5f};

struct shape {
	double side[3];
	int kind;
};

extern "C" __global__ void first(int *out, int n, double scale)
{
	__shared__ int part[100];

	part[threadIdx.x] = n + counters[0] + started;
	__syncthreads();
	out[threadIdx.x] = part[n] + (int)(scale * weights[n]);
}

extern "C" __global__ void __launch_bounds__(256) second(shape s, char c)
{
	counters[threadIdx.x % 5] = s.kind + c;
}

template <typename T> __global__ void third(T *out)
{
	*out = T(started);
}

template __global__ void third<float>(float *);
