// The gradient of attention of whole sequences.
#include "attention_grad.cuh"

typedef attention_grad_args attention_delta_args;

// attention_delta computes delta, a warp for each query.
KERNEL(attention_delta) {
	const attention_sizes &s = a.s;
	const int lane = threadIdx.x % 32;
	for (i64 query = GRID_INDEX / 32; query < a.queries; query += GRID_SIZE / 32) {
		const i64 place = query / s.tq, row = place / s.heads * s.tq + query % s.tq, head = place % s.heads;
		const float *o = a.o + row * a.o_stride + head * s.width, *d_o = a.d_o + row * a.d_o_stride + head * s.width;
		float sum = 0;
		for (int c = lane; c < s.width; c += 32) sum += o[c] * d_o[c];
		for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
		if (lane == 0) a.delta[query] = sum;
	}
}

GRADIENT(attention_keys_64, gradient_of_keys, 1, false, false)
GRADIENT(attention_keys_128, gradient_of_keys, 2, false, false)
GRADIENT(attention_queries_64, gradient_of_queries, 1, false, false)
GRADIENT(attention_queries_128, gradient_of_queries, 2, false, false)
GRADIENT(attention_keys_64_capped, gradient_of_keys, 1, true, false)
GRADIENT(attention_keys_128_capped, gradient_of_keys, 2, true, false)
GRADIENT(attention_queries_64_capped, gradient_of_queries, 1, true, false)
GRADIENT(attention_queries_128_capped, gradient_of_queries, 2, true, false)
