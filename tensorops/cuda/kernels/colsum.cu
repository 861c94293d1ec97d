// Sums over the rows of matrices: gradients of biases and of the norms' weights.
//
// They are made in two passes. A block of the first has 256 columns of some rows, eight columns to a
// lane: its warps take rows in turn, in float32, and are then added in order. The second adds what the
// blocks have found, in float64: each of its warps takes blocks in turn, and the warps are added in order.
// How many rows a block has depends on the number of rows alone (see launch_colsum.go).
#include "eight.cuh"

#ifdef TROUPE_EMULATED
#define COLSUM_UNROLL
#else
#define COLSUM_UNROLL _Pragma("unroll 4")
#endif

#define COLSUM_WARPS 8
#define COLSUM_WIDTH 256 // columns of a block: launch_colsum.go knows it as colSumWidth

// sum_columns is the first pass. add(row, col, left, sums) adds the N terms of eight elements to sums, of
// which left exist; partial, [blocks][N][cols], receives those of a block.
template <int N, class Add> __device__ inline void sum_columns(float *partial, i64 rows, i64 cols, i64 rows_of_block, Add add) {
	__shared__ float of_warps[COLSUM_WARPS][COLSUM_WIDTH];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const i64 first_col = (i64)blockIdx.x * COLSUM_WIDTH, col = first_col + 8 * lane, left = cols - col;
	const i64 first = (i64)blockIdx.y * rows_of_block;
	const i64 end = first + rows_of_block < rows ? first + rows_of_block : rows;
	eight sums[N] = {};
	if (left > 0) {
		// Some rows ahead of their sum.
		COLSUM_UNROLL for (i64 row = first + warp; row < end; row += COLSUM_WARPS) add(row, col, left, sums);
	}
	for (int i = 0; i < N; i++) {
		__syncthreads();
		EACH_OF_EIGHT(k) of_warps[warp][8 * lane + k] = sums[i].at[k];
		__syncthreads();
		const i64 own = first_col + threadIdx.x;
		if (own >= cols) continue;
		float sum = of_warps[0][threadIdx.x];
		for (int w = 1; w < COLSUM_WARPS; w++) sum += of_warps[w][threadIdx.x];
		partial[((i64)blockIdx.y * N + i) * cols + own] = sum;
	}
}

struct sum_columns_args {
	float *partial;
	const float *x;
	const float *dy, *stats; // of the norms
	i64 rows, cols, rows_of_block;
	u32 aligned, halves; // of x and dy
};

typedef sum_columns_args col_sum_args, wide_layer_norm_weight_grad_args, wide_rms_norm_weight_grad_args;

KERNEL(col_sum) {
	sum_columns<1>(a.partial, a.rows, a.cols, a.rows_of_block, [&](i64 row, i64 col, i64 left, eight *sums) {
		const eight x = load8(a.x, row * a.cols + col, left, a.aligned, a.halves & 1);
		EACH_OF_EIGHT(k) sums[0].at[k] += x.at[k];
	});
}

// wide_layer_norm_weight_grad sums up dy·x̂ for dgamma and dy for dbeta, of rows that norm_grad.cu does not
// take.
KERNEL(wide_layer_norm_weight_grad) {
	sum_columns<2>(a.partial, a.rows, a.cols, a.rows_of_block, [&](i64 row, i64 col, i64 left, eight *sums) {
		const eight x = load8(a.x, row * a.cols + col, left, a.aligned, a.halves & 1);
		const eight dy = load8(a.dy, row * a.cols + col, left, a.aligned, a.halves & 2);
		const float mean = a.stats[2 * row], rstd = a.stats[2 * row + 1];
		EACH_OF_EIGHT(k) {
			sums[0].at[k] += dy.at[k] * ((x.at[k] - mean) * rstd);
			sums[1].at[k] += dy.at[k];
		}
	});
}

// wide_rms_norm_weight_grad sums up dy·x·rstd.
KERNEL(wide_rms_norm_weight_grad) {
	sum_columns<1>(a.partial, a.rows, a.cols, a.rows_of_block, [&](i64 row, i64 col, i64 left, eight *sums) {
		const eight x = load8(a.x, row * a.cols + col, left, a.aligned, a.halves & 1);
		const eight dy = load8(a.dy, row * a.cols + col, left, a.aligned, a.halves & 2);
		const float rstd = a.stats[row];
		EACH_OF_EIGHT(k) sums[0].at[k] += dy.at[k] * (x.at[k] * rstd);
	});
}

#define ADD_WARPS 16 // launch_colsum.go knows it as addWarps

// add_columns is the second pass: it adds the sums of all blocks to those that the
// gradients hold. Each row of its grid has one of the N gradients, each block 32 columns.
struct add_columns_args {
	float *grad[2]; // the second may be 0
	const float *partial;
	i64 cols;
	int blocks, terms; // terms is N
};

KERNEL(add_columns) {
	__shared__ double of_warps[ADD_WARPS][32];
	float *grad = blockIdx.y == 0 ? a.grad[0] : a.grad[1];
	if (grad == 0) return;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const i64 col = (i64)blockIdx.x * 32 + lane;
	double sum = 0;
	if (col < a.cols) {
		COLSUM_UNROLL for (int b = warp; b < a.blocks; b += ADD_WARPS) sum += a.partial[((i64)b * a.terms + blockIdx.y) * a.cols + col];
	}
	of_warps[warp][lane] = sum;
	__syncthreads();
	if (warp > 0 || col >= a.cols) return;
	for (int w = 1; w < ADD_WARPS; w++) sum += of_warps[w][lane];
	grad[col] += (float)sum;
}
