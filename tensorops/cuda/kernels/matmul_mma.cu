// Matrix products of operands that are rounded to bfloat16, on the tensor cores, with sums in
// float32. The depth is cut in pieces as in matmul.cu; a piece is summed up by 16 at a time,
// in ascending order. So here too an element's bits depend on its row of A, its column of B
// and the depth alone.
//
// A block has a tile of C, 128×128 or 64×64, of which each of its warps, two by four of them,
// has a half by a quarter in registers.
#include "matmul_mma_tile.cuh"

template <int WIDE, bool deep_a, bool deep_b> __device__ inline void multiply(matmul_args a, u32 *shared_a, u32 *shared_b) {
	int row0, col0;
	place_of_tile(a, WIDE, row0, col0);
	i64 first = a.first, last = a.last;
	if (a.parts) {
		first += (i64)blockIdx.y * DEPTH;
		if (last > first + DEPTH) last = first + DEPTH;
		a.c += (i64)blockIdx.y * a.m * a.n;
	}
	multiply_tile<WIDE, deep_a, deep_b>(a, row0, col0, first, last, a.accumulate, shared_a, shared_b);
}

// The forms are those of matmul.cu.
#define PRODUCT(name, WIDE, deep_a, deep_b) \
	typedef matmul_args name##_args; \
	TILED_KERNEL(name, WIDE == 128 ? 1 : 2) { \
		__shared__ uint4 shared_a[2 * side<WIDE, deep_a>::words / 4], shared_b[2 * side<WIDE, deep_b>::words / 4]; \
		multiply<WIDE, deep_a, deep_b>(a, &shared_a[0].x, &shared_b[0].x); \
	}

PRODUCT(matmul_mma_nn_128, 128, true, false)
PRODUCT(matmul_mma_nt_128, 128, true, true)
PRODUCT(matmul_mma_tn_128, 128, false, false)
PRODUCT(matmul_mma_tt_128, 128, false, true)
PRODUCT(matmul_mma_nn_64, 64, true, false)
PRODUCT(matmul_mma_nt_64, 64, true, true)
PRODUCT(matmul_mma_tn_64, 64, false, false)
PRODUCT(matmul_mma_tt_64, 64, false, true)
