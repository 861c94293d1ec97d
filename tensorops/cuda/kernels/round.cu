// Rounding of float32 matrices to bfloat16, for products by a library that takes them so.
#include "bf16.cuh"
#include "four.cuh"

struct round_bf16_args {
	unsigned short *to;
	const float *from;
	i64 rows, cols, to_stride, from_stride;
	u32 aligned, pad;
};

struct alignas(8) bf16_quad {
	u32 low, high; // two elements each
};

// round_bf16 writes rows that begin at multiples of eight elements. So there is room for a
// whole quad at a row's end; what is not of the matrix becomes 0.
KERNEL(round_bf16) {
	for (i64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
		EACH_FOUR(j, a.cols) {
			const four v = load4(a.from + row * a.from_stride + j, a.cols - j, a.aligned);
			*(bf16_quad *)(a.to + row * a.to_stride + j) =
				bf16_quad{bf16_bits(v.at[0]) | bf16_bits(v.at[1]) << 16, bf16_bits(v.at[2]) | bf16_bits(v.at[3]) << 16};
		}
	}
}
