// The gradient of attention of whole sequences on the tensor cores.
#include "attention_grad_mma.cuh"

typedef attention_grad_mma_args attention_delta_mma_args;

// load_four reads four channels of a matrix that may be bfloat16.
__device__ inline quad load_four(const float *m, u32 half, i64 at, int left, bool aligned) {
	return half ? load_quad((const bf16 *)m + at, left, aligned) : load_quad(m + at, left, aligned);
}

// attention_delta_mma computes delta, eight lanes for each query, and sets all turns to 0.
KERNEL(attention_delta_mma) {
	const attention_sizes &s = a.s;
	const int lane = threadIdx.x % 8;
	for (i64 i = GRID_INDEX; i < a.counters; i += GRID_SIZE) a.turns[i] = 0;
	for (i64 first = GRID_INDEX / 32 * 4; first < a.queries; first += GRID_SIZE / 8) { // of the warp's four
		const i64 query = first + threadIdx.x % 32 / 8;
		float sum = 0;
		if (query < a.queries) {
			const i64 place = query / s.tq, row = place / s.heads * s.tq + query % s.tq, channel = place % s.heads * s.width;
			for (int c = 4 * lane; c < s.width; c += 32) {
				const quad x = load_four(a.o, a.halves & 16, row * a.o_stride + channel + c, s.width - c, s.quads);
				const quad y = load_four(a.d_o, a.halves & 8, row * a.d_o_stride + channel + c, s.width - c, s.quads);
				sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
			}
		}
		for (int lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
		if (lane == 0 && query < a.queries) a.delta[query] = sum;
	}
}

GRADIENT(attention_grad_mma_64, 64, 2, GRAD_QUERIES_64, false, false, false)
GRADIENT(attention_grad_mma_128, 128, 1, GRAD_QUERIES_128, false, false, false)
GRADIENT(attention_grad_mma_64_dropped, 64, 2, GRAD_QUERIES_64, true, false, false)
GRADIENT(attention_grad_mma_128_dropped, 128, 1, GRAD_QUERIES_128, true, false, false)
GRADIENT(attention_grad_mma_64_capped, 64, 2, GRAD_QUERIES_64, false, true, false)
GRADIENT(attention_grad_mma_128_capped, 128, 1, GRAD_QUERIES_128, false, true, false)
