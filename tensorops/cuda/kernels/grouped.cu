// Products of the rows of several experts in float32, by the tiles of matmul.cu: an element has the bits of a product of
// the same row, column and depth there, wherever the row is.
#include "grouped.cuh"
#include "matmul_tile.cuh"

#define GROUPED_THREADS 256 // launch_grouped.go knows it as groupedThreads

struct grouped_tiles_args {
	int *tiles;
	const int *offsets;
	route_fault fault;
	i64 rows, most; // most: tiles
	int experts, parts, wide;
	int all; // every row has an expert
};

// grouped_tiles, a single block, finds the tiles of rows of each expert, in order; those that remain belong to none. If
// the offsets do not ascend, all of them belong to none.
KERNEL(grouped_tiles) {
	__shared__ int sums[GROUPED_THREADS], bad;
	const int n = a.experts * a.parts;
	if (threadIdx.x == 0) bad = a.offsets[0] != 0 || a.offsets[n] > a.rows || (a.all && a.offsets[n] != a.rows);
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		if (a.offsets[i + 1] < a.offsets[i]) bad = 1;
	__syncthreads();
	i64 before = 0; // tiles of the experts before
	for (int first = 0; first < a.experts && !bad; first += blockDim.x) {
		const int expert = first + threadIdx.x;
		i64 from = 0, to = 0;
		if (expert < a.experts) from = a.offsets[expert * a.parts], to = a.offsets[(expert + 1) * a.parts];
		const int own = (int)((to - from + a.wide - 1) / a.wide);
		int *const tiles = a.tiles + 3 * (before + running_sum(sums, own) - own);
		for (int i = 0; i < own; i++) {
			tiles[3 * i] = expert;
			tiles[3 * i + 1] = (int)(from + (i64)i * a.wide);
			tiles[3 * i + 2] = (int)to;
		}
		before += sums[blockDim.x - 1];
		__syncthreads();
	}
	if (bad && threadIdx.x == 0) bad_route(a.fault, 0);
	for (i64 i = before + threadIdx.x; i < a.most; i += blockDim.x) a.tiles[3 * i] = -1;
}

template <int R, bool deep_b> __device__ inline void multiply(const grouped_args &a, float *shared) {
	matmul_args m;
	if (!tile_of(a, m)) return;
	const int col0 = blockIdx.y * 16 * R;
	multiply_tile<R, true, deep_b>(m, 0, col0, 0, m.last, m.accumulate, shared);
	if (m.last == 0) { // the sum of nothing
		float sum[R][R] = {};
		write_piece<R>(m, sum, 0, col0, m.accumulate);
	}
}

template <int R> __device__ inline void multiply_weights(const grouped_weight_args &a, float *shared) {
	matmul_args m;
	if (!weights_of(a, m)) return;
	int row0, col0;
	place_of_tile(m, 16 * R, row0, col0);
	multiply_tile<R, false, false>(m, row0, col0, 0, m.last, true, shared);
}

// The forms: n for matrices that are stored as they are multiplied, t for transposed ones, and tiles as in matmul.cu.
#define GROUPED(name, R, call, of) \
	typedef of name##_args; \
	TILED_KERNEL(name, R == 8 ? 1 : 2) { \
		__shared__ quad shared[STEP(R) * (16 * R + 4)]; \
		call(a, &shared[0].x); \
	}

GROUPED(grouped_n_128, 8, (multiply<8, false>), grouped_args)
GROUPED(grouped_t_128, 8, (multiply<8, true>), grouped_args)
GROUPED(grouped_n_64, 4, (multiply<4, false>), grouped_args)
GROUPED(grouped_t_64, 4, (multiply<4, true>), grouped_args)
GROUPED(grouped_weights_128, 8, (multiply_weights<8>), grouped_weight_args)
GROUPED(grouped_weights_64, 4, (multiply_weights<4>), grouped_weight_args)
