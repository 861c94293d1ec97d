// The attention of queries to one block of keys, added to that to others.
#include "four.cuh"
#include "reduce.cuh"

struct attention_onto_args {
	float *o, *lse; // to other keys; then to all
	const float *part_o, *part_lse;
	i64 count; // queries in all: sequences × heads × queries
	int queries, heads, width; // width: channels of a head
	u32 halves; // of o
};

// onto has a warp for each query. One that sees none of the keys keeps what it has.
template <bool mixed> __device__ inline void onto(const attention_onto_args &a) {
	const int lane = threadIdx.x % 32;
	for (i64 at = GRID_INDEX / 32; at < a.count; at += GRID_SIZE / 32) {
		const i64 place = at / a.queries, row = place / a.heads * a.queries + at % a.queries, head = place % a.heads;
		const float before = __shfl_sync(ALL_LANES, lane == 0 ? a.lse[at] : 0, 0), now = a.part_lse[at];
		if (now < -3.402823466e38f) continue; // it is −∞
		const float top = fmaxf(before, now), kept = expf(before - top), added = expf(now - top), sum = kept + added;
		for (int c = lane; c < a.width; c += 32) {
			const i64 i = (row * a.heads + head) * a.width + c;
			store_one<mixed>(a.o, i, (load_one<mixed>(a.o, i, a.halves) * kept + a.part_o[i] * added) / sum, a.halves);
		}
		if (lane == 0) a.lse[at] = top + logf(sum);
	}
}

FORMS(attention_onto, onto)
