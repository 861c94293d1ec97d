// Sums over a block. Their order depends on the number of threads alone, which launchers
// take from shapes: so a sum has the same bits in every run and in every layout.
#ifndef TROUPE_REDUCE_CUH
#define TROUPE_REDUCE_CUH

#include "common.cuh"

#define ALL_LANES 0xffffffffu

// warp_sum gives all lanes of a warp the sum of their values. The two that are added at
// each step are the same on both sides, so all lanes have the same bits.
template <class T> __device__ inline T warp_sum(T v) {
	for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(ALL_LANES, v, apart);
	return v;
}

__device__ inline float warp_max(float v) {
	for (int apart = 16; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, apart));
	return v;
}

// block_sums replaces each of N values by its sum over the threads of a block, whole
// warps, in all of them.
template <int N, class T> __device__ inline void block_sums(T (&v)[N]) {
	__shared__ T of_warps[N][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	__syncthreads(); // what an earlier call left has been read
	for (int i = 0; i < N; i++) {
		v[i] = warp_sum(v[i]);
		if (lane == 0) of_warps[i][warp] = v[i];
	}
	__syncthreads();
	for (int i = 0; i < N; i++) v[i] = warp_sum(lane < warps ? of_warps[i][lane] : T(0));
}

template <class T> __device__ inline T block_sum(T v) {
	T one[1] = {v};
	block_sums(one);
	return one[0];
}

// block_max is the largest value in a block.
__device__ inline float block_max(float v) {
	__shared__ float of_warps[32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	__syncthreads();
	v = warp_max(v);
	if (lane == 0) of_warps[warp] = v;
	__syncthreads();
	return warp_max(lane < warps ? of_warps[lane] : of_warps[0]);
}

#endif
