// Updates of weights, and the squared norm that gradients are clipped by.
#include "four.cuh"
#include "reduce.cuh"

struct squares_args {
	double *partial; // of each block
	const float *x;
	i64 n, of_block; // elements: all, and those of a block, a multiple of 4
	u32 aligned, pad;
};

// squares is the first pass of the squared norm: a block has a fixed number of elements.
// It squares in float64, where nothing overflows and nothing is lost.
KERNEL(squares) {
	const i64 first = (i64)blockIdx.x * a.of_block;
	const i64 count = a.n - first < a.of_block ? a.n - first : a.of_block;
	double sum = 0;
	EACH_FOUR_OF_ROW(i, count) {
		const four v = load4(a.x + first + i, count - i, a.aligned);
		for (int k = 0; k < 4; k++) sum += (double)v.at[k] * v.at[k];
	}
	sum = block_sum(sum);
	if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}

struct add_squares_args {
	double *out;
	const double *partial;
	i64 blocks;
};

// add_squares is the second pass, in one block.
KERNEL(add_squares) {
	double sum = 0;
	for (i64 b = threadIdx.x; b < a.blocks; b += blockDim.x) sum += a.partial[b];
	sum = block_sum(sum);
	if (threadIdx.x == 0) a.out[0] = sum;
}

// AdamW (Loshchilov, Hutter: Decoupled weight decay regularization, 2019). The numbers of
// the step come ready from the host, which makes them in float64.
struct adamw_args {
	float *w, *m, *v, *g;
	i64 n;
	float beta1, rest1; // rest1 = 1 − beta1
	float beta2, rest2;
	float keep; // 1 − rate·decay
	float rate; // of learning, over the first moment's bias 1 − beta1^step
	float root; // 1/√(1 − beta2^step): of the second moment's bias
	float eps;
	float scale; // of the gradient
	int clear; // leave zeros for the gradient
	u32 aligned, pad;
};

KERNEL(adamw) {
	EACH_FOUR(i, a.n) {
		const i64 left = a.n - i;
		four w = load4(a.w + i, left, a.aligned), m = load4(a.m + i, left, a.aligned);
		four v = load4(a.v + i, left, a.aligned), g = load4(a.g + i, left, a.aligned);
		for (int k = 0; k < 4; k++) {
			const float grad = g.at[k] * a.scale;
			m.at[k] = a.beta1 * m.at[k] + a.rest1 * grad;
			v.at[k] = a.beta2 * v.at[k] + a.rest2 * grad * grad;
			w.at[k] = a.keep * w.at[k] - a.rate * m.at[k] / (sqrtf(v.at[k]) * a.root + a.eps);
			g.at[k] = 0;
		}
		store4(a.w + i, w, left, a.aligned);
		store4(a.m + i, m, left, a.aligned);
		store4(a.v + i, v, left, a.aligned);
		if (a.clear) store4(a.g + i, g, left, a.aligned);
	}
}

struct sgd_args {
	float *w, *m; // m may be 0
	const float *g;
	i64 n;
	float rate, momentum, decay, scale;
	u32 aligned, pad;
};

// sgd: d = scale·g + decay·w; m = momentum·m + d; w −= rate·m, or rate·d without m.
KERNEL(sgd) {
	EACH_FOUR(i, a.n) {
		const i64 left = a.n - i;
		four w = load4(a.w + i, left, a.aligned), d = load4(a.g + i, left, a.aligned);
		for (int k = 0; k < 4; k++) d.at[k] = a.scale * d.at[k] + a.decay * w.at[k];
		if (a.m != 0) {
			const four m = load4(a.m + i, left, a.aligned);
			for (int k = 0; k < 4; k++) d.at[k] += a.momentum * m.at[k];
			store4(a.m + i, d, left, a.aligned);
		}
		for (int k = 0; k < 4; k++) w.at[k] -= a.rate * d.at[k];
		store4(a.w + i, w, left, a.aligned);
	}
}
