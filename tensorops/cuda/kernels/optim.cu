// Updates of weights, and the squared norm that gradients are clipped by.
#include "four.cuh"
#include "reduce.cuh"

// A launch goes through many tensors, of which each has blocks of its own, OF_BLOCK
// elements to a block. Tables say which: their entries are in ascending order of first.
#define OF_BLOCK 16384 // launch_optim.go knows it as ofBlock

// entry_of finds the last entry that begins at this block or before; those that have no
// blocks come before it.
template <class E> __device__ inline E entry_of(const E *entries, i64 count) {
	i64 low = 0, high = count; // entries[low].first ≤ blockIdx.x < entries[high].first
	while (high - low > 1) {
		const i64 middle = (low + high) / 2;
		if (entries[middle].first <= (i64)blockIdx.x) low = middle;
		else high = middle;
	}
	return entries[low];
}

struct norm_entry {
	double *out;
	const float *x;
	i64 n, first;
	u32 aligned, half; // half: x is bfloat16
};

struct squares_args {
	double *partial; // of each block
	const norm_entry *entries;
	i64 count, blocks;
};

// squares is the first pass of the squared norms. It squares in float64, where nothing
// overflows and nothing is lost.
KERNEL(squares) {
	const norm_entry e = entry_of(a.entries, a.count);
	const i64 first = (blockIdx.x - e.first) * OF_BLOCK;
	const i64 count = e.n - first < OF_BLOCK ? e.n - first : OF_BLOCK;
	double sum = 0;
	EACH_FOUR_OF_ROW(i, count) {
		const four v = load4<true>(e.x, first + i, count - i, e.aligned, e.half);
		for (int k = 0; k < 4; k++) sum += (double)v.at[k] * v.at[k];
	}
	sum = block_sum(sum);
	if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}

typedef squares_args add_squares_args;

// add_squares is the second pass: a block for each tensor.
KERNEL(add_squares) {
	const norm_entry e = a.entries[blockIdx.x];
	const i64 end = (i64)blockIdx.x + 1 < a.count ? a.entries[blockIdx.x + 1].first : a.blocks;
	double sum = 0;
	for (i64 b = e.first + threadIdx.x; b < end; b += blockDim.x) sum += a.partial[b];
	sum = block_sum(sum);
	if (threadIdx.x == 0) e.out[0] = sum;
}

struct adamw_entry {
	float *w, *m, *v, *g;
	bf16 *copy; // or 0: receives the new weight
	i64 n, first;
	float keep; // 1 − rate·decay
	u32 aligned;
};

// AdamW (Loshchilov, Hutter: Decoupled weight decay regularization, 2019). The numbers of
// the step come ready from the host, which makes them in float64.
struct adamw_args {
	const adamw_entry *entries;
	i64 count;
	float beta1, rest1; // rest1 = 1 − beta1
	float beta2, rest2;
	float rate; // of learning, over the first moment's bias 1 − beta1^step
	float root; // 1/√(1 − beta2^step): of the second moment's bias
	float eps;
	float scale; // of the gradient
	int clear, pad; // leave zeros for the gradient
};

KERNEL(adamw) {
	const adamw_entry e = entry_of(a.entries, a.count);
	const i64 first = (blockIdx.x - e.first) * OF_BLOCK;
	const i64 end = first + OF_BLOCK < e.n ? first + OF_BLOCK : e.n;
	for (i64 i = first + 4 * (i64)threadIdx.x; i < end; i += 4 * (i64)blockDim.x) {
		const i64 left = end - i;
		four w = load4(e.w + i, left, e.aligned), m = load4(e.m + i, left, e.aligned);
		four v = load4(e.v + i, left, e.aligned), g = load4(e.g + i, left, e.aligned);
		for (int k = 0; k < 4; k++) {
			const float grad = g.at[k] * a.scale;
			m.at[k] = a.beta1 * m.at[k] + a.rest1 * grad;
			v.at[k] = a.beta2 * v.at[k] + a.rest2 * grad * grad;
			w.at[k] = e.keep * w.at[k] - a.rate * m.at[k] / (sqrtf(v.at[k]) * a.root + a.eps);
			g.at[k] = 0;
		}
		store4(e.w + i, w, left, e.aligned);
		if (e.copy) store4(e.copy + i, w, left, e.aligned);
		store4(e.m + i, m, left, e.aligned);
		store4(e.v + i, v, left, e.aligned);
		if (a.clear) store4(e.g + i, g, left, e.aligned);
	}
}

struct sgd_args {
	float *w, *m; // m may be 0
	const float *g;
	bf16 *copy; // or 0: receives the new weight
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
		if (a.copy) store4(a.copy + i, w, left, a.aligned);
	}
}
