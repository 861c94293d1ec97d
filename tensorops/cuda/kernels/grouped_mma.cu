// Products of the rows of several experts, rounded to bfloat16, on the tensor cores: by the tiles of matmul_mma.cu, with
// the bits of a product there.
#include "grouped.cuh"
#include "matmul_mma_tile.cuh"

template <int WIDE, bool deep_b> __device__ inline void multiply(const grouped_args &a, u32 *shared_a, u32 *shared_b) {
	matmul_args m;
	if (!tile_of(a, m)) return;
	multiply_tile<WIDE, true, deep_b>(m, 0, blockIdx.y * WIDE, 0, m.last, m.accumulate, shared_a, shared_b);
}

template <int WIDE> __device__ inline void multiply_weights(const grouped_weight_args &a, u32 *shared_a, u32 *shared_b) {
	matmul_args m;
	if (!weights_of(a, m)) return;
	int row0, col0;
	place_of_tile(m, WIDE, row0, col0);
	multiply_tile<WIDE, false, false>(m, row0, col0, 0, m.last, true, shared_a, shared_b);
}

// The forms are those of grouped.cu.
#define GROUPED(name, WIDE, deep_a, deep_b, call, of) \
	typedef of name##_args; \
	TILED_KERNEL(name, WIDE == 128 ? 1 : 2) { \
		__shared__ uint4 shared_a[2 * side<WIDE, deep_a>::words / 4], shared_b[2 * side<WIDE, deep_b>::words / 4]; \
		call(a, &shared_a[0].x, &shared_b[0].x); \
	}

GROUPED(grouped_mma_n_128, 128, true, false, (multiply<128, false>), grouped_args)
GROUPED(grouped_mma_t_128, 128, true, true, (multiply<128, true>), grouped_args)
GROUPED(grouped_mma_n_64, 64, true, false, (multiply<64, false>), grouped_args)
GROUPED(grouped_mma_t_64, 64, true, true, (multiply<64, true>), grouped_args)
GROUPED(grouped_mma_weights_128, 128, false, false, (multiply_weights<128>), grouped_weight_args)
GROUPED(grouped_mma_weights_64, 64, false, false, (multiply_weights<64>), grouped_weight_args)
