// The gradient of attention on the tensor cores, by the formulas of attention_grad.cu,
// which has the kernel for delta too. Here as well one kernel goes through the queries for
// each tile of keys, another through the keys for each tile of queries.
#include "attention_mma.cuh"

#define STEP 32 // queries or keys, in shared memory at a time
#define KEYS 64 // of a block that computes dk and dv, 16 for each two warps: launch_attention.go knows it

template <int D> struct keys_in_shared {
	uint4 k_rows[tile<D, STEP>::row_words / 4], k_columns[tile<D, STEP>::column_words / 4], v_rows[tile<D, STEP>::row_words / 4];
};

// gradient_of_queries computes dq of QUERIES queries, 16 in each warp.
template <int D, bool quads> __device__ inline void gradient_of_queries(const attention_grad_args &a, keys_in_shared<D> &shared) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tq + QUERIES - 1) / QUERIES, places = gridDim.x / tiles;
	const int place = (int)blockIdx.x % places, sequence = place / s.heads, head = place % s.heads, kv_head = head / (s.heads / s.kv_heads);
	const int query0 = (tiles - 1 - (int)blockIdx.x / places) * QUERIES; // those that see most begin first
	const int own = query0 + (int)threadIdx.x / 32 * 16;                  // the warp's first query

	left q[D / 16], d_o[D / 16];
	hold<D, quads>(q, rows_of(a.q, a.q_stride, sequence, s.tq, own, head, s.width), lane_row(), lane_row() + 8, s);
	hold<D, quads>(d_o, rows_of(a.d_o, a.d_o_stride, sequence, s.tq, own, head, s.width), lane_row(), lane_row() + 8, s);
	float lse[2] = {}, delta[2] = {};
	UNROLL for (int r = 0; r < 2; r++) {
		const int query = own + lane_row() + 8 * r;
		if (query < s.tq) {
			lse[r] = a.lse[(i64)place * s.tq + query] * LOG2_E;
			delta[r] = a.delta[(i64)place * s.tq + query];
		}
	}
	part dq[D / 16] = {};
	const float scale = s.scale * LOG2_E;
	const int last = query0 + QUERIES < s.tq ? query0 + QUERIES : s.tq;
	const int end = last + s.tk - s.tq, own_end = own < s.tq ? own + 16 + s.tk - s.tq : 0;
	const int from = first_tile(s, query0, STEP), own_from = first_tile(s, own, STEP);
	fetched<D, STEP, 2, quads> next;
	for (int key0 = from - STEP; key0 < end; key0 += STEP) { // the first time, only to fetch
		const bool sees = key0 >= own_from && key0 < own_end, more = key0 + STEP < end;
		u32 kept = 0;
		if (s.dropped && sees) kept = kept_keys<STEP>(s, place, own, key0);
		if (more) {
			next.fetch(rows_of(a.k, a.k_stride, sequence, s.tk, key0 + STEP, kv_head, s.width),
				rows_of(a.v, a.v_stride, sequence, s.tk, key0 + STEP, kv_head, s.width), s.width);
		}
		if (sees) {
			UNROLL for (int n = 0; n < STEP / 16; n++) {
				part p = dot<D, STEP>(q, &shared.k_rows[0].x, 16 * n);
				part ds = dot<D, STEP>(d_o, &shared.v_rows[0].x, 16 * n);
				const int beyond = key0 + 16 * n - (own + s.tk - s.tq);
				if (beyond + 15 > 0) hide(p, beyond + lane_column() - lane_row(), -8, 1);
				const int before = first_seen(s, own) - (key0 + 16 * n);
				if (s.window && before + 15 > 0) hide(p, before - lane_column() + lane_row(), 8, -1);
				UNROLL for (int r = 0; r < 2; r++) {
					UNROLL for (int j = 0; j < 4; j++) {
						const float chance = exp2f(p.at[r][j] * scale - lse[r]);
						float dp = ds.at[r][j];
						if (s.dropped) dp *= kept >> (8 * n + 4 * r + j) & 1 ? s.mask.scale : 0;
						ds.at[r][j] = chance * (dp - delta[r]);
					}
				}
				combine<D, STEP>(dq, left_of(ds), &shared.k_columns[0].x, 16 * n);
			}
		}
		if (!more) break;
		__syncthreads(); // what was there has been read
		next.put_rows(&shared.k_rows[0].x, &shared.v_rows[0].x);
		next.put_columns(&shared.k_columns[0].x, 0);
		__syncthreads();
	}
	UNROLL for (int r = 0; r < 2; r++) {
		const int query = own + lane_row() + 8 * r;
		if (query < s.tq) write_row<D, quads>(a.dq + ((i64)sequence * s.tq + query) * a.dq_stride + (i64)head * s.width, dq, r, s.scale, s);
	}
}

template <int D> struct queries_in_shared {
	uint4 q_rows[tile<D, STEP>::row_words / 4], q_columns[tile<D, STEP>::column_words / 4];
	uint4 d_o_rows[tile<D, STEP>::row_words / 4], d_o_columns[tile<D, STEP>::column_words / 4];
	quad chances[STEP / 16][2][WARPS / 2 * 32];
};

// kept_queries draws dropout's mask for a lane's parts of 16 keys from key0 on by STEP
// queries from query0 on, where its rows are keys 2g and 2g+1: bit 8·n + 4·r + j is that of
// row r and column j of part n. Random words come for four keys at a time, which two lanes
// have: each draws for two of the four queries that they share.
__device__ inline u32 kept_queries(const attention_sizes &s, i64 place, int query0, int key0) {
	const int half = lane_row() % 2;
	u32 bits = 0;
	ROLLED for (int n = 0; n < STEP / 16; n++) {
		u32 drawn = 0; // bit 4·(query of two) + key of four
		ROLLED for (int i = 0; i < 2; i++)
			drawn |= four_kept(s, place, query0 + 16 * n + lane_column() + 2 * half + i, key0 + lane_row() / 2 * 4) << (4 * i);
		const u32 other = __shfl_xor_sync(0xffffffffu, drawn, 4);
		const u32 of_queries[2] = {half ? other : drawn, half ? drawn : other};
		UNROLL for (int r = 0; r < 2; r++)
			UNROLL for (int j = 0; j < 4; j++) bits |= (of_queries[j / 2] >> (j % 2 * 4 + 2 * half + r) & 1) << (8 * n + 4 * r + j);
	}
	return bits;
}

// gradient_of_keys computes dk and dv of KEYS keys: the heads that share them, in ascending
// order, and of each the queries that see any. Two warps have the same 16 keys. One of them
// computes the probabilities and with them dv, the other the gradients of the scores and
// with them dk; half of the work is each one's, and of the sums, which are what takes most
// registers. The first tells the second the probabilities by shared memory.
template <int D, bool quads> __device__ inline void gradient_of_keys(const attention_grad_args &a, queries_in_shared<D> &shared) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tk + KEYS - 1) / KEYS, places = gridDim.x / tiles, group = s.heads / s.kv_heads;
	const int sequence = (int)blockIdx.x % places / s.kv_heads, kv_head = (int)blockIdx.x % places % s.kv_heads;
	const int key0 = (int)blockIdx.x / places * KEYS; // the first are seen by most queries
	const int warp = threadIdx.x / 32, pair = warp % (WARPS / 2), slot = (int)threadIdx.x % (WARPS / 2 * 32);
	const bool of_scores = warp >= WARPS / 2; // the second of two warps
	const int own = key0 + 16 * pair, key = own + 2 * lane_row(); // the first of the warp's keys, and of the lane's

	left x[D / 16];
	const rows own_rows = of_scores ? rows_of(a.v, a.v_stride, sequence, s.tk, own, kv_head, s.width) : rows_of(a.k, a.k_stride, sequence, s.tk, own, kv_head, s.width);
	hold<D, quads>(x, own_rows, 2 * lane_row(), 2 * lane_row() + 1, s);
	const u32 *const other_rows = of_scores ? &shared.d_o_rows[0].x : &shared.q_rows[0].x;
	const u32 *const other_columns = of_scores ? &shared.q_columns[0].x : &shared.d_o_columns[0].x;
	const float *const of_queries = of_scores ? a.delta : a.lse;
	part sum[D / 16] = {};

	const float scale = s.scale * LOG2_E;
	const int seen_by = key0 - (s.tk - s.tq) > 0 ? (key0 - (s.tk - s.tq)) / STEP * STEP : 0; // and later queries, up to the last
	const int last = end_of_window(s, key0 + KEYS - 1);
	const int steps = last > seen_by ? (last - seen_by + STEP - 1) / STEP : 1;
	fetched<D, STEP, 2, quads> next;
	for (int step = -1; step < steps * group; step++) { // the first time, only to fetch
		const int head = kv_head * group + step / steps, query0 = seen_by + step % steps * STEP;
		const i64 place = (i64)sequence * s.heads + head;
		const bool sees = step >= 0 && query0 + STEP - 1 + s.tk - s.tq >= own, more = step + 1 < steps * group;
		u32 kept = ~0u;
		if (s.dropped && sees && !of_scores) kept = kept_queries(s, place, query0, own);
		if (more) {
			const int next_head = kv_head * group + (step + 1) / steps, next_query = seen_by + (step + 1) % steps * STEP;
			next.fetch(rows_of(a.q, a.q_stride, sequence, s.tq, next_query, next_head, s.width),
				rows_of(a.d_o, a.d_o_stride, sequence, s.tq, next_query, next_head, s.width), s.width);
		}
		part found[STEP / 16];
		float known[STEP / 16][4] = {}; // lse or delta
		if (sees) {
			UNROLL for (int n = 0; n < STEP / 16; n++)
				UNROLL for (int j = 0; j < 4; j++) {
					const int query = query0 + 16 * n + lane_column() + j;
					if (query < s.tq) known[n][j] = of_queries[place * s.tq + query];
				}
			UNROLL for (int n = 0; n < STEP / 16; n++) found[n] = dot<D, STEP>(x, other_rows, 16 * n);
		}
		if (sees && !of_scores) {
			UNROLL for (int n = 0; n < STEP / 16; n++) {
				const int beyond = own - (query0 + 16 * n + s.tk - s.tq);
				if (beyond + 15 > 0) hide(found[n], beyond + 2 * lane_row() - lane_column(), 1, -1);
				const int before = first_seen(s, query0 + 16 * n) - own;
				if (s.window && before + 15 > 0) hide(found[n], before - 2 * lane_row() + lane_column(), -1, 1);
				UNROLL for (int r = 0; r < 2; r++) {
					float *const v = found[n].at[r];
					float told[4];
					UNROLL for (int j = 0; j < 4; j++) {
						const float chance = exp2f(v[j] * scale - known[n][j] * LOG2_E);
						const bool keep = kept >> (8 * n + 4 * r + j) & 1;
						told[j] = keep ? chance : -chance; // so the other knows which were dropped
						v[j] = keep ? chance : 0;
						if (s.dropped) v[j] *= s.mask.scale;
					}
					shared.chances[n][r][slot] = quad{told[0], told[1], told[2], told[3]};
				}
			}
		}
		__syncthreads();
		if (sees) {
			UNROLL for (int n = 0; n < STEP / 16; n++) {
				if (of_scores) {
					UNROLL for (int r = 0; r < 2; r++) {
						const quad is = shared.chances[n][r][slot];
						const float told[4] = {is.x, is.y, is.z, is.w};
						UNROLL for (int j = 0; j < 4; j++) {
							float dp = found[n].at[r][j];
							if (s.dropped) dp *= told[j] < 0 ? 0 : s.mask.scale;
							found[n].at[r][j] = fabsf(told[j]) * (dp - known[n][j]);
						}
					}
				}
				combine<D, STEP>(sum, left_of(found[n]), other_columns, 16 * n);
			}
		}
		if (!more) break;
		__syncthreads(); // what was there has been read
		next.put_rows(&shared.q_rows[0].x, &shared.d_o_rows[0].x);
		next.put_columns(&shared.q_columns[0].x, &shared.d_o_columns[0].x);
		__syncthreads();
	}
	float *const to = of_scores ? a.dk : a.dv;
	const i64 stride = of_scores ? a.dk_stride : a.dv_stride;
	UNROLL for (int r = 0; r < 2; r++)
		if (key + r < s.tk) write_row<D, quads>(to + ((i64)sequence * s.tk + key + r) * stride + (i64)kv_head * s.width, sum, r, of_scores ? s.scale : 1, s);
}

#define GRADIENT(name, D, quads, gradient, memory) \
	typedef attention_grad_args name##_args; \
	TILED_KERNEL(name, 1) { \
		__shared__ memory<D> shared; \
		gradient<D, quads>(a, shared); \
	}

GRADIENT(attention_keys_mma_64, 64, true, gradient_of_keys, queries_in_shared)
GRADIENT(attention_keys_mma_128, 128, true, gradient_of_keys, queries_in_shared)
GRADIENT(attention_keys_mma_any, 128, false, gradient_of_keys, queries_in_shared)
GRADIENT(attention_queries_mma_64, 64, true, gradient_of_queries, keys_in_shared)
GRADIENT(attention_queries_mma_128, 128, true, gradient_of_queries, keys_in_shared)
GRADIENT(attention_queries_mma_any, 128, false, gradient_of_queries, keys_in_shared)
