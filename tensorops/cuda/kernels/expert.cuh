// What the kernels of experts have in common: rows that warps take, and what tells the host of rows that do not exist.
#ifndef TROUPE_EXPERT_CUH
#define TROUPE_EXPERT_CUH

#include "four.cuh"
#include "reduce.cuh"

// EACH_ROW goes through n rows by the warps of a grid, EACH_FOUR_OF_LANES through n elements of a row by the lanes of a
// warp: i is the first of four.
#define EACH_ROW(row, n) for (i64 row = GRID_INDEX / 32; row < (n); row += GRID_SIZE / 32)
#define EACH_FOUR_OF_LANES(i, n) for (i64 i = 4 * (i64)(threadIdx.x % 32); i < (n); i += 128)

// route_fault is where an operation tells the host of places, experts or offsets that cannot be: see checkedroutes.go.
struct route_fault {
	i64 *word;
	int kind, pad; // of the operation
};

// bad_route tells the host. If several threads do, it learns of one of them.
__device__ inline void bad_route(const route_fault &f, i64 at) { *f.word = 1LL << 40 | (i64)f.kind << 32 | (u32)at; }

// one_of is a number of a list that must be below limit; −1: it is not.
__device__ inline i64 one_of(const int *numbers, i64 at, i64 limit, const route_fault &f) {
	const int n = numbers[at];
	if (n >= 0 && n < limit) return n;
	bad_route(f, at);
	return -1;
}

// running_sum is the sum of the numbers of a block's threads up to this one's. sums has room for one of each, and the last is then
// the sum of all. A barrier must come before sums is used again.
__device__ inline int running_sum(int *sums, int own) {
	sums[threadIdx.x] = own;
	__syncthreads();
	for (int apart = 1; apart < (int)blockDim.x; apart *= 2) {
		const int more = (int)threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
		__syncthreads();
		sums[threadIdx.x] += more;
		__syncthreads();
	}
	return sums[threadIdx.x];
}

// sigmoid is 1/(1 + e^−x) in float64, as the CPU's device computes it.
__device__ inline double sigmoid(float x) { return 1 / (1 + exp(-(double)x)); }

#endif
