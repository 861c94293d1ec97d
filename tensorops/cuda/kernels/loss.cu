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

// row_lse is log Σ exp of the row that begins at first, in all threads of the block, each of which
// keeps the largest of its own elements so far (Milakov, Gimelshein: Online normalizer
// calculation for softmax, 2018).
template <bool mixed> __device__ inline double row_lse(const cross_entropy_args &a, i64 first) {
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
	return top_of_row + log(total);
}

// row_grad writes scale·(softmax − onehot) of the row, whose target has the place hit; zeros if it
// is to be ignored.
template <bool mixed> __device__ inline void row_grad(const cross_entropy_args &a, i64 first, double lse, i64 hit, bool ignored) {
	const i64 apart = apart_of(a.cols);
	// lse is subtracted in two parts: one float32 would lose precision.
	const float high = (float)lse, low = (float)(lse - high);
	EACH_FOUR_APART(j, apart, a.cols) {
		four v = load_apart<mixed>(a, first, j, apart);
		for (int k = 0; k < 4; k++) {
			float g = 0;
			if (!ignored) g = expf((v.at[k] - high) - low) * a.scale;
			if (j + k * apart == hit) g -= a.scale;
			v.at[k] = g;
		}
		store_apart<mixed>(a, first, j, apart, v);
	}
}

// A block has a row. It reads it once for lse, and once more for the gradient.
template <bool mixed> __device__ inline void cross_entropy_row(const cross_entropy_args &a) {
	const i64 row = blockIdx.x, first = row * a.cols;
	const int target = a.targets[row];
	if (target != IGNORE_TARGET && (target < 0 || target >= a.cols)) {
		if (threadIdx.x == 0) bad_id(a.fault, row);
		return;
	}
	const float hit = target == IGNORE_TARGET ? 0 : load_one<mixed>(a.logits, first + target, a.halves & 1); // read before the gradient replaces it
	const double lse = row_lse<mixed>(a, first);
	if (threadIdx.x == 0) {
		a.lse[row] = lse;
		a.losses[row] = lse - hit;
	}
	if (a.grad != 0) row_grad<mixed>(a, first, lse, target, target == IGNORE_TARGET);
}

FORMS(cross_entropy, cross_entropy_row)

struct cross_entropy_part_args {
	double *parts; // of each row: lse, and the logit of the target or 0
	const float *logits; // of the ids from first on
	const int *targets;
	i64 *fault;
	i64 cols, first, vocab;
	u32 aligned, halves;
};

// A block has a row of a slice of the vocabulary.
template <bool mixed> __device__ inline void cross_entropy_part_row(const cross_entropy_part_args &a) {
	const i64 row = blockIdx.x, first = row * a.cols, target = a.targets[row], hit = target - a.first;
	if (target != IGNORE_TARGET && (target < 0 || target >= a.vocab)) {
		if (threadIdx.x == 0) bad_id(a.fault, row);
		return;
	}
	const cross_entropy_args whole = {0, 0, a.logits, a.targets, 0, a.fault, a.cols, 0, a.aligned, a.halves, 0};
	const double lse = row_lse<mixed>(whole, first);
	if (threadIdx.x != 0) return;
	a.parts[2 * row] = lse;
	a.parts[2 * row + 1] = hit >= 0 && hit < a.cols ? load_one<mixed>(a.logits, first + hit, a.halves & 1) : 0;
}

FORMS(cross_entropy_part, cross_entropy_part_row)

struct loss_join_args {
	double *losses, *lse;
	const double *parts;
	i64 rows, slices;
};

// loss_join makes lse and loss of each row of the parts of all slices.
KERNEL(loss_join) {
	for (i64 row = GRID_INDEX; row < a.rows; row += GRID_SIZE) {
		double top = a.parts[2 * row], sum = 0, hit = 0;
		for (i64 s = 1; s < a.slices; s++) top = fmax(top, a.parts[2 * (s * a.rows + row)]);
		for (i64 s = 0; s < a.slices; s++) {
			sum += exp(a.parts[2 * (s * a.rows + row)] - top);
			hit += a.parts[2 * (s * a.rows + row) + 1];
		}
		a.lse[row] = top + log(sum);
		a.losses[row] = a.lse[row] - hit;
	}
}

struct cross_entropy_join_args {
	const double *lse;
	const float *logits;
	const int *targets;
	float *grad; // may be logits
	i64 cols, first;
	float scale;
	u32 aligned;
	u32 halves, pad;
};

// A block has a row of a slice's gradient.
template <bool mixed> __device__ inline void cross_entropy_join_row(const cross_entropy_join_args &a) {
	const i64 row = blockIdx.x;
	const int target = a.targets[row];
	const cross_entropy_args whole = {0, 0, a.logits, a.targets, a.grad, 0, a.cols, a.scale, a.aligned, a.halves, 0};
	row_grad<mixed>(whole, row * a.cols, a.lse[row], target - a.first, target == IGNORE_TARGET);
}

FORMS(cross_entropy_join, cross_entropy_join_row)

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
