// LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019), and the gradients
// of their inputs. A block has a row, of any width, and reads it twice: once for the sums,
// once, from the cache, for the result.
#include "four.cuh"
#include "reduce.cuh"

struct norm_args {
	float *y;
	const float *x, *gamma, *beta; // beta may be 0
	float *stats;                  // LayerNorm: mean and rstd of each row; RMSNorm: rstd
	double eps;
	i64 cols;
	u32 aligned, halves; // of y and x
};

// normalise is the second reading: y = (x − mean)·rstd·gamma + beta.
template <bool mixed> __device__ inline void normalise(const norm_args &a, float mean, float rstd) {
	const i64 row = (i64)blockIdx.x * a.cols;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		four v = load4<mixed>(a.x, row + j, left, a.aligned, a.halves & 2);
		const four gamma = load4(a.gamma + j, left, a.aligned);
		for (int k = 0; k < 4; k++) v.at[k] = (v.at[k] - mean) * rstd * gamma.at[k];
		if (a.beta != 0) {
			const four beta = load4(a.beta + j, left, a.aligned);
			for (int k = 0; k < 4; k++) v.at[k] += beta.at[k];
		}
		store4<mixed>(a.y, row + j, v, left, a.aligned, a.halves & 1);
	}
}

typedef norm_args layer_norm_args, rms_norm_args;

template <bool mixed> __device__ inline void layer_norm_row(const norm_args &a) {
	const i64 row = (i64)blockIdx.x * a.cols;
	// Sums, in float64, of what remains without the first element: they lose nothing where
	// the row is far from zero.
	const float shift = load_one<mixed>(a.x, row, a.halves & 2);
	double sums[2] = {0, 0}; // of the differences and of their squares
	EACH_FOUR_OF_ROW(j, a.cols) {
		const four v = load4<mixed>(a.x, row + j, a.cols - j, a.aligned, a.halves & 2, shift);
		for (int k = 0; k < 4; k++) {
			const double d = (double)v.at[k] - shift;
			sums[0] += d;
			sums[1] += d * d;
		}
	}
	block_sums(sums);
	const double offset = sums[0] / a.cols, variance = fmax(sums[1] / a.cols - offset * offset, 0.0);
	const float mean = (float)(shift + offset), rstd = (float)(1 / sqrt(variance + a.eps));
	if (threadIdx.x == 0) {
		a.stats[2 * (i64)blockIdx.x] = mean;
		a.stats[2 * (i64)blockIdx.x + 1] = rstd;
	}
	normalise<mixed>(a, mean, rstd);
}

FORMS(layer_norm, layer_norm_row)

template <bool mixed> __device__ inline void rms_norm_row(const norm_args &a) {
	const i64 row = (i64)blockIdx.x * a.cols;
	double squares = 0;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const four v = load4<mixed>(a.x, row + j, a.cols - j, a.aligned, a.halves & 2);
		for (int k = 0; k < 4; k++) squares += (double)v.at[k] * v.at[k];
	}
	const float rstd = (float)(1 / sqrt(block_sum(squares) / a.cols + a.eps));
	if (threadIdx.x == 0) a.stats[blockIdx.x] = rstd;
	normalise<mixed>(a, 0, rstd);
}

FORMS(rms_norm, rms_norm_row)

struct norm_grad_args {
	float *dx;
	const float *dy, *x, *gamma, *stats, *skip; // skip may be 0
	i64 cols;
	u32 aligned, halves; // of dx, dy, x and skip
};

// norm_grad: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) + skip, g = dy·gamma, x̂ = (x − mean)·rstd.
// RMSNorm's is without mean(g), and its rows have a mean of 0. The block has summed before
// any thread writes, so dx may be dy.
template <bool mixed> __device__ inline void norm_grad(const norm_grad_args &a, bool centred, float mean, float rstd) {
	const i64 row = (i64)blockIdx.x * a.cols;
	float sums[2] = {0, 0}; // of g and of g·x̂
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		const four x = load4<mixed>(a.x, row + j, left, a.aligned, a.halves & 4), dy = load4<mixed>(a.dy, row + j, left, a.aligned, a.halves & 2);
		const four gamma = load4(a.gamma + j, left, a.aligned); // 0 past the row's end
		for (int k = 0; k < 4; k++) {
			const float g = dy.at[k] * gamma.at[k];
			sums[0] += g;
			sums[1] += g * ((x.at[k] - mean) * rstd);
		}
	}
	block_sums(sums);
	const float mean_g = centred ? sums[0] / a.cols : 0, mean_gx = sums[1] / a.cols;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		const four x = load4<mixed>(a.x, row + j, left, a.aligned, a.halves & 4), gamma = load4(a.gamma + j, left, a.aligned);
		four d = load4<mixed>(a.dy, row + j, left, a.aligned, a.halves & 2);
		for (int k = 0; k < 4; k++) {
			d.at[k] = rstd * (d.at[k] * gamma.at[k] - mean_g - (x.at[k] - mean) * rstd * mean_gx);
		}
		if (a.skip != 0) {
			const four skip = load4<mixed>(a.skip, row + j, left, a.aligned, a.halves & 8);
			for (int k = 0; k < 4; k++) d.at[k] += skip.at[k];
		}
		store4<mixed>(a.dx, row + j, d, left, a.aligned, a.halves & 1);
	}
}

typedef norm_grad_args layer_norm_grad_args, rms_norm_grad_args;

template <bool mixed> __device__ inline void layer_norm_grad_row(const norm_grad_args &a) {
	const float *stats = a.stats + 2 * (i64)blockIdx.x;
	norm_grad<mixed>(a, true, stats[0], stats[1]);
}

template <bool mixed> __device__ inline void rms_norm_grad_row(const norm_grad_args &a) { norm_grad<mixed>(a, false, 0, a.stats[blockIdx.x]); }

FORMS(layer_norm_grad, layer_norm_grad_row)
FORMS(rms_norm_grad, rms_norm_grad_row)
