// Sums over the rows of matrices: gradients of biases and of the norms' weights.
//
// They are made in two passes. A block of the first has 32 columns of some rows: its warps
// take rows in turn, in float32, and are then added in order. The second adds what the
// blocks have found, in float64 and in order. How many rows a block has depends on the
// number of rows alone (see launch_colsum.go).
#include "four.cuh"

#define COLSUM_WARPS 8

// sum_columns is the first pass. add(row, col, sums) adds an element's N terms to sums;
// partial, [blocks][N][cols], receives those of a block.
template <int N, class Add> __device__ inline void sum_columns(float *partial, i64 rows, i64 cols, i64 rows_of_block, Add add) {
	__shared__ float of_warps[COLSUM_WARPS][N][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const i64 col = (i64)blockIdx.x * 32 + lane;
	const i64 first = (i64)blockIdx.y * rows_of_block;
	const i64 end = first + rows_of_block < rows ? first + rows_of_block : rows;
	float sums[N] = {};
	if (col < cols) {
		for (i64 row = first + warp; row < end; row += COLSUM_WARPS) add(row, col, sums);
	}
	for (int i = 0; i < N; i++) of_warps[warp][i][lane] = sums[i];
	__syncthreads();
	if (warp > 0 || col >= cols) return;
	for (int i = 0; i < N; i++) {
		float sum = of_warps[0][i][lane];
		for (int w = 1; w < COLSUM_WARPS; w++) sum += of_warps[w][i][lane];
		partial[((i64)blockIdx.y * N + i) * cols + col] = sum;
	}
}

struct sum_columns_args {
	float *partial;
	const float *x;
	const float *dy, *stats; // of the norms
	i64 rows, cols, rows_of_block;
	u32 halves, pad; // of x and dy
};

typedef sum_columns_args col_sum_args, layer_norm_weight_grad_args, rms_norm_weight_grad_args;

template <bool mixed> __device__ inline void sum_of_columns(const sum_columns_args &a) {
	const float *x = a.x;
	const i64 cols = a.cols;
	const u32 half = a.halves & 1;
	sum_columns<1>(a.partial, a.rows, cols, a.rows_of_block, [=](i64 row, i64 col, float *sums) { sums[0] += load_one<mixed>(x, row * cols + col, half); });
}

FORMS(col_sum, sum_of_columns)

// layer_norm_weight_grad sums up dy·x̂ for dgamma and dy for dbeta.
template <bool mixed> __device__ inline void layer_norm_weights(const sum_columns_args &a) {
	const float *dy = a.dy, *x = a.x, *stats = a.stats;
	const i64 cols = a.cols;
	const u32 half_x = a.halves & 1, half_dy = a.halves & 2;
	sum_columns<2>(a.partial, a.rows, cols, a.rows_of_block, [=](i64 row, i64 col, float *sums) {
		const float d = load_one<mixed>(dy, row * cols + col, half_dy);
		sums[0] += d * ((load_one<mixed>(x, row * cols + col, half_x) - stats[2 * row]) * stats[2 * row + 1]);
		sums[1] += d;
	});
}

FORMS(layer_norm_weight_grad, layer_norm_weights)

// rms_norm_weight_grad sums up dy·x·rstd.
template <bool mixed> __device__ inline void rms_norm_weights(const sum_columns_args &a) {
	const float *dy = a.dy, *x = a.x, *stats = a.stats;
	const i64 cols = a.cols;
	const u32 half_x = a.halves & 1, half_dy = a.halves & 2;
	sum_columns<1>(a.partial, a.rows, cols, a.rows_of_block, [=](i64 row, i64 col, float *sums) {
		sums[0] += load_one<mixed>(dy, row * cols + col, half_dy) * (load_one<mixed>(x, row * cols + col, half_x) * stats[row]);
	});
}

FORMS(rms_norm_weight_grad, rms_norm_weights)

// add_columns is the second pass: it adds the sums of all blocks to those that the
// gradients hold. Each row of its grid has one of the N gradients.
struct add_columns_args {
	float *grad[2]; // the second may be 0
	const float *partial;
	i64 cols;
	int blocks, terms; // terms is N
};

KERNEL(add_columns) {
	float *grad = blockIdx.y == 0 ? a.grad[0] : a.grad[1];
	const i64 col = GRID_INDEX;
	if (grad == 0 || col >= a.cols) return;
	double sum = 0;
	for (int b = 0; b < a.blocks; b++) sum += a.partial[((i64)b * a.terms + blockIdx.y) * a.cols + col];
	grad[col] += (float)sum;
}
