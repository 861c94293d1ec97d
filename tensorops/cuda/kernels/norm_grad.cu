// Gradients of the norms: of what they took, and of their weights. One kernel makes either or both, of rows
// that it reads once, so that the bits are the same.
//
//	dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) + skip, g = dy·gamma, x̂ = (x − mean)·rstd
//	dgamma += Σ dy·x̂, dbeta += Σ dy
//
// RMSNorm's dx is without mean(g), and its rows have a mean of 0.
//
// A block has some rows, as many as the number of rows alone says, and takes one after the other: more
// at a time take registers, and with them room from other blocks, which is worse. Each thread has eight
// columns, whose sums over the block's rows it keeps. add_columns of colsum.cu adds those of all blocks. Rows that a block of NORM_THREADS can't take are wide_norm_grad's, and the sums
// over them colsum.cu's.
#include "eight.cuh"
#include "reduce.cuh"

#define NORM_THREADS 512 // launch_norm.go knows it as normThreads

struct norm_grad_args {
	float *dx; // or 0
	const float *dy, *x, *gamma, *stats;
	const float *skip; // or 0
	float *partial;    // [blocks][terms][cols]; or 0
	i64 rows, cols, rows_of_block;
	u32 aligned, halves; // of dx, dy, x and skip
	float offset;        // of gamma
	u32 pad;
};

// load_gamma reads eight weights, with their offset.
__device__ inline eight load_gamma(const norm_grad_args &a, i64 j, i64 left) {
	eight gamma = load8(a.gamma, j, left, a.aligned, 0);
	EACH_OF_EIGHT(k) gamma.at[k] = __fadd_rn(gamma.at[k], a.offset);
	return gamma;
}

// slope is an element of dx without skip.
__device__ inline float slope(float dy, float gamma, float x_hat, float rstd, float mean_g, float mean_gx) {
	return __fmul_rn(rstd, __fmaf_rn(-x_hat, mean_gx, __fsub_rn(__fmul_rn(dy, gamma), mean_g)));
}

// x_hat normalises an element once more.
__device__ inline float x_hat(float x, float mean, float rstd) { return __fmul_rn(__fsub_rn(x, mean), rstd); }

template <bool centred> __device__ inline void norm_grad_rows(const norm_grad_args &a) {
	const i64 j = 8 * (i64)threadIdx.x, left = a.cols - j;
	const i64 first = (i64)blockIdx.x * a.rows_of_block;
	const i64 end = first + a.rows_of_block < a.rows ? first + a.rows_of_block : a.rows;
	eight gamma = {};
	if (a.dx != 0 && left > 0) gamma = load_gamma(a, j, left);
	eight dgamma = {}, dbeta = {};
	for (i64 row = first; row < end; row++) {
		const float mean = centred ? a.stats[2 * row] : 0, rstd = a.stats[centred ? 2 * row + 1 : row];
		eight x = {}, dy = {};
		if (left > 0) {
			x = load8(a.x, row * a.cols + j, left, a.aligned, a.halves & 4, mean);
			dy = load8(a.dy, row * a.cols + j, left, a.aligned, a.halves & 2);
		}
		float sums[2] = {0, 0}; // of g and of g·x̂
		EACH_OF_EIGHT(k) {
			const float normed = x_hat(x.at[k], mean, rstd), g = __fmul_rn(dy.at[k], gamma.at[k]);
			sums[0] = __fadd_rn(sums[0], g);
			sums[1] = __fmaf_rn(g, normed, sums[1]);
			dgamma.at[k] = __fmaf_rn(dy.at[k], normed, dgamma.at[k]);
			dbeta.at[k] = __fadd_rn(dbeta.at[k], dy.at[k]);
		}
		if (a.dx != 0) {
			block_sums(sums);
			if (left > 0) {
				const float mean_g = centred ? sums[0] / a.cols : 0, mean_gx = sums[1] / a.cols;
				eight d;
				EACH_OF_EIGHT(k) d.at[k] = slope(dy.at[k], gamma.at[k], x_hat(x.at[k], mean, rstd), rstd, mean_g, mean_gx);
				if (a.skip != 0) {
					const eight skip = load8(a.skip, row * a.cols + j, left, a.aligned, a.halves & 8);
					EACH_OF_EIGHT(k) d.at[k] = __fadd_rn(d.at[k], skip.at[k]);
				}
				store8(a.dx, row * a.cols + j, d, left, a.aligned, a.halves & 1);
			}
		}
	}
	if (a.partial == 0 || left <= 0) return;
	const int terms = centred ? 2 : 1;
	store8(a.partial, (i64)blockIdx.x * terms * a.cols + j, dgamma, left, a.aligned, 0);
	if (centred) store8(a.partial, ((i64)blockIdx.x * terms + 1) * a.cols + j, dbeta, left, a.aligned, 0);
}

typedef norm_grad_args layer_norm_grad_args, rms_norm_grad_args, wide_layer_norm_grad_args, wide_rms_norm_grad_args;

BOUNDED_KERNEL(layer_norm_grad, NORM_THREADS, 1) { norm_grad_rows<true>(a); }

BOUNDED_KERNEL(rms_norm_grad, NORM_THREADS, 1) { norm_grad_rows<false>(a); }

// wide_norm_grad makes dx alone. A block has a row, of any width, and reads it twice. It has summed before any
// thread writes, so dx may be dy.
template <bool centred> __device__ inline void wide_norm_grad(const norm_grad_args &a) {
	const i64 n = blockIdx.x, row = n * a.cols;
	const float mean = centred ? a.stats[2 * n] : 0, rstd = a.stats[centred ? 2 * n + 1 : n];
	float sums[2] = {0, 0};
	for (i64 j = 8 * (i64)threadIdx.x; j < a.cols; j += 8 * (i64)blockDim.x) {
		const i64 left = a.cols - j;
		const eight x = load8(a.x, row + j, left, a.aligned, a.halves & 4, mean), dy = load8(a.dy, row + j, left, a.aligned, a.halves & 2);
		const eight gamma = load_gamma(a, j, left);
		EACH_OF_EIGHT(k) {
			const float g = __fmul_rn(dy.at[k], gamma.at[k]);
			sums[0] = __fadd_rn(sums[0], g);
			sums[1] = __fmaf_rn(g, x_hat(x.at[k], mean, rstd), sums[1]);
		}
	}
	block_sums(sums);
	const float mean_g = centred ? sums[0] / a.cols : 0, mean_gx = sums[1] / a.cols;
	for (i64 j = 8 * (i64)threadIdx.x; j < a.cols; j += 8 * (i64)blockDim.x) {
		const i64 left = a.cols - j;
		const eight x = load8(a.x, row + j, left, a.aligned, a.halves & 4), gamma = load_gamma(a, j, left);
		eight d = load8(a.dy, row + j, left, a.aligned, a.halves & 2);
		EACH_OF_EIGHT(k) d.at[k] = slope(d.at[k], gamma.at[k], x_hat(x.at[k], mean, rstd), rstd, mean_g, mean_gx);
		if (a.skip != 0) {
			const eight skip = load8(a.skip, row + j, left, a.aligned, a.halves & 8);
			EACH_OF_EIGHT(k) d.at[k] = __fadd_rn(d.at[k], skip.at[k]);
		}
		store8(a.dx, row + j, d, left, a.aligned, a.halves & 1);
	}
}

BOUNDED_KERNEL(wide_layer_norm_grad, NORM_THREADS, 1) { wide_norm_grad<true>(a); }

BOUNDED_KERNEL(wide_rms_norm_grad, NORM_THREADS, 1) { wide_norm_grad<false>(a); }
