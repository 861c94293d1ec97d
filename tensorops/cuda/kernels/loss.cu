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
};

// A block has a row. It reads it once for lse = log Σ exp, each thread with the largest of
// its own elements so far (Milakov, Gimelshein: Online normalizer calculation for softmax,
// 2018), and once more for the gradient scale·(softmax − onehot(target)).
KERNEL(cross_entropy) {
	const i64 row = blockIdx.x;
	const float *logits = a.logits + row * a.cols;
	const int target = a.targets[row];
	if (target != IGNORE_TARGET && (target < 0 || target >= a.cols)) {
		if (threadIdx.x == 0) bad_id(a.fault, row);
		return;
	}
	const float hit = target == IGNORE_TARGET ? 0 : logits[target]; // read before the gradient replaces it

	float top = LOWEST, sum = 0;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const four v = load4(logits + j, a.cols - j, a.aligned, LOWEST);
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
	EACH_FOUR_OF_ROW(j, a.cols) {
		four v = load4(logits + j, a.cols - j, a.aligned);
		for (int k = 0; k < 4; k++) {
			float g = 0;
			if (target != IGNORE_TARGET) g = expf((v.at[k] - high) - low) * a.scale;
			if (j + k == target) g -= a.scale;
			v.at[k] = g;
		}
		store4(a.grad + row * a.cols + j, v, a.cols - j, a.aligned);
	}
}

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
