// Cross-entropy over rows of logits, with its gradient where asked for.
#include "fault.cuh"
#include "four.cuh"
#include "reduce.cuh"

#define LOWEST -3.402823466e38f // of float32
#define IGNORE_TARGET -1

struct cross_entropy_args {
	double *losses; // of each row: lse − logit of the target
	double *lse;
	const float *logits;
	const int *targets;
	float *grad; // or 0; may be logits
	i64 *fault;
	i64 cols;
	float scale;
	u32 aligned;
	u32 halves, pad; // of logits and grad
};

// Rows of a vocabulary that fours fill are read by fours. Others begin anywhere: then a
// thread's four elements lie a block's width apart, so that a warp's lie side by side. Which
// it is, and with it the order of sums, is a matter of the width alone.
__device__ inline i64 apart_of(i64 cols) { return cols % 4 == 0 ? 1 : (i64)blockDim.x; }

#define EACH_FOUR_APART(j, apart, n) for (i64 j = (apart) == 1 ? 4 * (i64)threadIdx.x : (i64)threadIdx.x; j < (n); j += 4 * (i64)blockDim.x)

// load_apart reads logits of the row that begins at first.
template <bool mixed> __device__ inline four load_apart(const cross_entropy_args &a, i64 first, i64 j, i64 apart) {
	const u32 half = a.halves & 1;
	if (apart == 1) return load4<mixed>(a.logits, first + j, a.cols - j, a.aligned, half, LOWEST);
	four f;
	for (int k = 0; k < 4; k++) f.at[k] = j + k * apart < a.cols ? load_one<mixed>(a.logits, first + j + k * apart, half) : LOWEST;
	return f;
}

// store_apart writes their gradients.
template <bool mixed> __device__ inline void store_apart(const cross_entropy_args &a, i64 first, i64 j, i64 apart, const four &f) {
	const u32 half = a.halves & 2;
	if (apart == 1) return store4<mixed>(a.grad, first + j, f, a.cols - j, a.aligned, half);
	for (int k = 0; k < 4; k++)
		if (j + k * apart < a.cols) store_one<mixed>(a.grad, first + j + k * apart, f.at[k], half);
}

// A block has a row. It reads it once for lse = log Σ exp, each thread with the largest of
// its own elements so far (Milakov, Gimelshein: Online normalizer calculation for softmax,
// 2018), and once more for the gradient scale·(softmax − onehot(target)).
template <bool mixed> __device__ inline void cross_entropy_row(const cross_entropy_args &a) {
	const i64 row = blockIdx.x, first = row * a.cols;
	const int target = a.targets[row];
	if (target != IGNORE_TARGET && (target < 0 || target >= a.cols)) {
		if (threadIdx.x == 0) bad_id(a.fault, row);
		return;
	}
	const float hit = target == IGNORE_TARGET ? 0 : load_one<mixed>(a.logits, first + target, a.halves & 1); // read before the gradient replaces it

	const i64 apart = apart_of(a.cols);
	float top = LOWEST, sum = 0;
	EACH_FOUR_APART(j, apart, a.cols) {
		const four v = load_apart<mixed>(a, first, j, apart);
		const float higher = fmaxf(fmaxf(v.at[0], v.at[1]), fmaxf(v.at[2], v.at[3]));
		if (higher > top) {
			sum *= expf(top - higher);
			top = higher;
		}
		for (int k = 0; k < 4; k++) sum += expf(v.at[k] - top);
	}
	const float top_of_row = block_max(top);
	const double total = block_sum((double)(sum * expf(top - top_of_row)));
	const double lse = top_of_row + log(total);
	if (threadIdx.x == 0) {
		a.lse[row] = lse;
		a.losses[row] = lse - hit;
	}

	if (a.grad == 0) return;
	// lse is subtracted in two parts: one float32 would lose precision.
	const float high = (float)lse, low = (float)(lse - high);
	EACH_FOUR_APART(j, apart, a.cols) {
		four v = load_apart<mixed>(a, first, j, apart);
		for (int k = 0; k < 4; k++) {
			float g = 0;
			if (target != IGNORE_TARGET) g = expf((v.at[k] - high) - low) * a.scale;
			if (j + k * apart == target) g -= a.scale;
			v.at[k] = g;
		}
		store_apart<mixed>(a, first, j, apart, v);
	}
}

FORMS(cross_entropy, cross_entropy_row)

struct loss_stats_args {
	double *stats;
	const double *losses;
	const int *targets;
	i64 rows;
};

// loss_stats adds up the losses and the number of targets. A single block does: rows are
// few beside logits. Each thread takes every so many-th row, in ascending order.
KERNEL(loss_stats) {
	double sums[2] = {0, 0};
	for (i64 row = threadIdx.x; row < a.rows; row += blockDim.x) {
		if (a.targets[row] == IGNORE_TARGET) continue;
		sums[0] += a.losses[row];
		sums[1] += 1;
	}
	block_sums(sums);
	if (threadIdx.x == 0) {
		a.stats[0] = sums[0];
		a.stats[1] = sums[1];
	}
}
