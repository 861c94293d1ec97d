// Matrix products in float32: C = op(A)·op(B), plus C before or a bias.
//
// A block computes a tile of C from tiles of A and B in shared memory, each thread R×R
// elements in registers: the scheme of Volkov and Demmel (Benchmarking GPUs to
// tune dense linear algebra, SC'08). While a step of the depth is multiplied, the next is
// on its way from memory.
//
// Sums: the depth is cut in pieces of DEPTH. Each is summed up from 0 in ascending order,
// and the pieces are added in order to what C starts from. So an element's bits depend on
// its row of A, its column of B and the depth, not on the tiles nor on whether the pieces
// were given to different blocks.
#include "matmul_tile.cuh"

template <int R, bool deep_a, bool deep_b> __device__ inline void multiply(matmul_args a, float *shared) {
	int row0, col0;
	place_of_tile(a, 16 * R, row0, col0);
	i64 first = a.first, last = a.last;
	if (a.parts) {
		first += (i64)blockIdx.y * DEPTH;
		if (last > first + DEPTH) last = first + DEPTH;
		a.c += (i64)blockIdx.y * a.m * a.n;
	}
	multiply_tile<R, deep_a, deep_b>(a, row0, col0, first, last, a.accumulate, shared);
}

// The forms: n for an operand that is stored as it is multiplied, t for a transposed one;
// tiles of 128×128 for large products, of 64×64 for those that would be few of them.
#define PRODUCT(name, R, deep_a, deep_b) \
	typedef matmul_args name##_args; \
	TILED_KERNEL(name, R == 8 ? 1 : 2) { \
		__shared__ quad shared[STEP(R) * (16 * R + 4)]; \
		multiply<R, deep_a, deep_b>(a, &shared[0].x); \
	}

PRODUCT(matmul_nn_128, 8, true, false)
PRODUCT(matmul_nt_128, 8, true, true)
PRODUCT(matmul_tn_128, 8, false, false)
PRODUCT(matmul_tt_128, 8, false, true)
PRODUCT(matmul_nn_64, 4, true, false)
PRODUCT(matmul_nt_64, 4, true, true)
PRODUCT(matmul_tn_64, 4, false, false)
PRODUCT(matmul_tt_64, 4, false, true)

struct matmul_sum_args {
	float *c;
	const float *parts; // [pieces][M][N]
	const float *bias;  // or 0
	i64 c_stride;
	i64 elements; // M·N
	int n, pieces, accumulate, pad;
};

// matmul_sum adds pieces of a product that were computed apart, in ascending order.
KERNEL(matmul_sum) {
	for (i64 i = GRID_INDEX; i < a.elements; i += GRID_SIZE) {
		const i64 col = i % a.n;
		float *c = a.c + i / a.n * a.c_stride + col;
		float sum = 0;
		if (a.accumulate) sum = *c;
		else if (a.bias) sum = a.bias[col];
		for (int piece = 0; piece < a.pieces; piece++) sum += a.parts[piece * a.elements + i];
		*c = sum;
	}
}
