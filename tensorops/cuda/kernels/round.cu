// Copies of matrices from float32 to bfloat16, and back.
#include "quad.cuh"

struct round_bf16_args {
	bf16 *to;
	const float *from;
	i64 rows, cols, to_stride, from_stride;
	u32 aligned, pad;
};

struct widen_bf16_args {
	float *to;
	const bf16 *from;
	i64 rows, cols, to_stride, from_stride;
	u32 aligned, pad;
};

template <class Args> __device__ inline void convert(const Args &a) {
	for (i64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
		for (i64 j = 4 * GRID_INDEX; j < a.cols; j += 4 * GRID_SIZE) {
			const i64 left = a.cols - j;
			store_quad(a.to + row * a.to_stride + j, load_quad(a.from + row * a.from_stride + j, left, a.aligned), left, a.aligned);
		}
	}
}

KERNEL(round_bf16) { convert(a); }

KERNEL(widen_bf16) { convert(a); }
