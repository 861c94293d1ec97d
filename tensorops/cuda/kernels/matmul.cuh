// What the forms of matrix products have in common: see matmul.cu.
#ifndef TROUPE_MATMUL_CUH
#define TROUPE_MATMUL_CUH

#include "tile.cuh"

#define DEPTH 512 // of a piece: launch_linear.go knows it as pieceDepth

struct matmul_args {
	float *c; // M×N; with parts, [pieces][M][N]
	const float *a, *b;
	const float *bias; // or 0
	i64 c_stride, a_stride, b_stride;
	i64 first; // of the depth, a multiple of DEPTH
	i64 last;
	int m, n;
	int parts; // each row of blocks computes one piece, which goes to a part of C of its own
	int accumulate, bf16;
	int quads_a, quads_b, quads_c; // quads of the matrix are aligned
};

// place_of_tile is where a block's tile of C begins. Tiles are taken in bands of 8 rows of
// tiles, column by column, so that those in work at the same time share rows of A and columns
// of B in the cache.
__device__ inline void place_of_tile(const matmul_args &a, int wide, int &row0, int &col0) {
	const int tall = (a.m + wide - 1) / wide, across = (a.n + wide - 1) / wide;
	const int band = (int)blockIdx.x / (8 * across) * 8, in_band = (int)blockIdx.x % (8 * across);
	const int height = tall - band < 8 ? tall - band : 8;
	row0 = (band + in_band % height) * wide, col0 = in_band / height * wide;
}

#endif
