// The sinks of attention: a number for each head that joins the sum of every softmax.
#include "four.cuh"
#include "reduce.cuh"

struct attention_sink_args {
	float *o, *lse;
	const float *sinks;
	i64 count; // queries in all: sequences × heads × queries
	int queries, heads, width; // width: channels of a head
	u32 halves; // of o
};

// sink has a warp for each query.
template <bool mixed> __device__ inline void sink(const attention_sink_args &a) {
	const int lane = threadIdx.x % 32;
	for (i64 at = GRID_INDEX / 32; at < a.count; at += GRID_SIZE / 32) {
		const i64 place = at / a.queries, row = place / a.heads * a.queries + at % a.queries, head = place % a.heads;
		const float before = __shfl_sync(ALL_LANES, lane == 0 ? a.lse[at] : 0, 0), of_sink = a.sinks[head];
		if (!(of_sink >= -3.402823466e38f)) continue; // it is −∞ and takes nothing
		const float top = fmaxf(before, of_sink), keys = expf(before - top), sum = keys + expf(of_sink - top);
		const float kept = keys / sum;
		for (int c = lane; c < a.width; c += 32) {
			const i64 i = (row * a.heads + head) * a.width + c;
			store_one<mixed>(a.o, i, load_one<mixed>(a.o, i, a.halves) * kept, a.halves);
		}
		if (lane == 0) a.lse[at] = top + logf(sum);
	}
}

FORMS(attention_sink, sink)

struct attention_sink_grad_args {
	float *dsinks;
	const float *d_o, *o, *lse, *sinks;
	i64 rows; // sequences × queries
	int queries, heads, width;
	u32 halves; // of d_o and o
};

// sink_gradient has a block for each head, and adds to its sink's gradient −Σ e^(sink − lse)·(do·o). A warp has
// every eighth query, or the like: the order depends on the number of threads alone.
template <bool mixed> __device__ inline void sink_gradient(const attention_sink_grad_args &a) {
	const int lane = threadIdx.x % 32, head = blockIdx.x;
	double sum = 0;
	for (i64 row = threadIdx.x / 32; row < a.rows; row += blockDim.x / 32) {
		const i64 from = (row * a.heads + head) * a.width;
		float product = 0;
		for (int c = lane; c < a.width; c += 32) product += load_one<mixed>(a.d_o, from + c, a.halves & 1) * load_one<mixed>(a.o, from + c, a.halves & 2);
		product = warp_sum(product);
		const float weight = expf(a.sinks[head] - a.lse[(row / a.queries * a.heads + head) * a.queries + row % a.queries]);
		if (lane == 0 && weight > 0) sum += (double)weight * product;
	}
	sum = block_sum(sum);
	if (threadIdx.x == 0) a.dsinks[head] = (float)(a.dsinks[head] - sum);
}

FORMS(attention_sink_grad, sink_gradient)
