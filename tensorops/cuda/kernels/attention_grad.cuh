// The gradient of attention. With p = exp(score − lse), m its dropout factor and
// delta = Σ o·do of a query, which is Σ p·dp (arXiv 2307.08691, section 2.3):
//
//	dv[j] = Σ p·m·do,  dp = m·(do·v[j]),  ds = p·(dp − delta),
//	dq = Σ ds·k[j]·slope,  dk[j] = Σ ds·q·slope,
//
// where slope is the scale of the scores, or under a soft cap less.
//
// One kernel goes through the queries for each tile of keys, another through the keys for
// each tile of queries. Both compute the scores, and no two blocks add to the same place.
#ifndef TROUPE_ATTENTION_GRAD_CUH
#define TROUPE_ATTENTION_GRAD_CUH

#include "attention.cuh"

// factors of four neighbouring keys for one query, or ones.
__device__ inline void factors_or_ones(float factors[4], const attention_sizes &s, i64 place, int query, int key) {
	UNROLL for (int j = 0; j < 4; j++) factors[j] = 1;
	if (s.dropped) factors_at(factors, s, place, query, key);
}

// gradient_of_keys computes dk and dv of a tile of keys: the heads that share it, in
// ascending order, and of each the queries that see any of the tile.
template <int W, bool capped, bool starts> __device__ inline void gradient_of_keys(const attention_grad_args &a, float *room, float *tile) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tk + TILE - 1) / TILE, group = s.heads / s.kv_heads;
	const int sequence = (int)(blockIdx.x / tiles / s.kv_heads), kv_head = (int)(blockIdx.x / tiles % s.kv_heads);
	const int key0 = (int)(blockIdx.x % tiles) * TILE; // the first is seen by most queries
	const int c0 = (int)blockIdx.y * W * TILE;
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

	float dk[W][4][4] = {}, dv[W][4][4] = {};
	const int seen_by = key0 - s.offset; // and later queries, up to the end
	const int end = tiles_to<starts>(s, sequence, key0 / TILE, TILE, TILE) * TILE;
	for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
		const i64 place = (i64)sequence * s.heads + head;
		for (int query0 = seen_by > 0 ? seen_by / TILE * TILE : 0; query0 < end; query0 += TILE) {
			const rows q = rows_of(a.q, a.q_stride, sequence, s.tq, query0, head, s.width);
			const rows d_o = rows_of(a.d_o, a.d_o_stride, sequence, s.tq, query0, head, s.width);
			float p[4][4], ds[4][4];
			dot_rows(p, q, rows_of(a.k, a.k_stride, sequence, s.tk, again(key0), kv_head, s.width), s, room);
			dot_rows(ds, d_o, rows_of(a.v, a.v_stride, sequence, s.tk, again(key0), kv_head, s.width), s, room);
			UNROLL for (int i = 0; i < 4; i++) {
				const int query = query0 + ty * 4 + i, key = key0 + tx * 4, start = start_of<starts>(s, sequence, query);
				float lse = 0, delta = 0, factors[4];
				if (query < s.tq) {
					lse = a.lse[place * s.tq + query];
					delta = a.delta[place * s.tq + query];
				}
				factors_or_ones(factors, s, place, query, key);
				UNROLL for (int j = 0; j < 4; j++) {
					const float score = scored<capped>(s, p[i][j]);
					const float chance = unseen<starts>(s, query, key + j, start) ? 0 : expf(score - lse);
					p[i][j] = chance * factors[j];
					ds[i][j] = chance * (ds[i][j] * factors[j] - delta) * slope_at<capped>(s, score);
				}
			}
			put_rows(tile, p);
			add_product<W>(dv, tile, d_o, c0, s, room);
			put_rows(tile, ds);
			add_product<W>(dk, tile, q, c0, s, room);
		}
	}
	const i64 row = (i64)sequence * s.tk + key0, column = (i64)kv_head * s.width;
	write_window<W>(a.dk + row * a.dk_stride + column, a.dk_stride, s.tk - key0, dk, c0, s);
	write_window<W>(a.dv + row * a.dv_stride + column, a.dv_stride, s.tk - key0, dv, c0, s);
}

// gradient_of_queries computes dq of a tile of queries. Here the tiles of scores have keys
// for rows, as add_product wants them.
template <int W, bool capped, bool starts> __device__ inline void gradient_of_queries(const attention_grad_args &a, float *room, float *tile) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tq + TILE - 1) / TILE;
	const i64 place = blockIdx.x / tiles;
	const int sequence = (int)(place / s.heads), head = (int)(place % s.heads), kv_head = head / (s.heads / s.kv_heads);
	const int query0 = (tiles - 1 - (int)(blockIdx.x % tiles)) * TILE; // those that see most begin first
	const int c0 = (int)blockIdx.y * W * TILE;
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

	const rows q = rows_of(a.q, a.q_stride, sequence, s.tq, query0, head, s.width);
	const rows d_o = rows_of(a.d_o, a.d_o_stride, sequence, s.tq, query0, head, s.width);
	float lse[4] = {}, delta[4] = {};
	UNROLL for (int j = 0; j < 4; j++) {
		const int query = query0 + tx * 4 + j;
		if (query < s.tq) {
			lse[j] = a.lse[place * s.tq + query];
			delta[j] = a.delta[place * s.tq + query];
		}
	}
	float dq[W][4][4] = {};
	const int last = end_of_keys(s, query0 + TILE < s.tq ? query0 + TILE : s.tq);
	for (int key0 = tile_from<starts>(s, sequence, query0, TILE, TILE) * TILE; key0 < last; key0 += TILE) {
		const rows k = rows_of(a.k, a.k_stride, sequence, s.tk, key0, kv_head, s.width);
		const rows v = rows_of(a.v, a.v_stride, sequence, s.tk, key0, kv_head, s.width);
		float p[4][4], ds[4][4];
		dot_rows(p, k, q, s, room);
		dot_rows(ds, v, d_o, s, room);
		UNROLL for (int j = 0; j < 4; j++) {
			const int query = query0 + tx * 4 + j, key = key0 + ty * 4, start = start_of<starts>(s, sequence, query);
			float factors[4];
			factors_or_ones(factors, s, place, query, key);
			UNROLL for (int i = 0; i < 4; i++) {
				const float score = scored<capped>(s, p[i][j]);
				const float chance = unseen<starts>(s, query, key + i, start) ? 0 : expf(score - lse[j]);
				ds[i][j] = chance * (ds[i][j] * factors[i] - delta[j]) * slope_at<capped>(s, score);
			}
		}
		put_rows(tile, ds);
		add_product<W>(dq, tile, k, c0, s, room);
	}
	write_window<W>(a.dq + ((i64)sequence * s.tq + query0) * a.dq_stride + (i64)head * s.width, a.dq_stride, s.tq - query0, dq, c0, s);
}

// With a soft cap or starts a kernel has as many registers as it likes.
#define GRADIENT(name, gradient, W, capped, starts) \
	typedef attention_grad_args name##_args; \
	TILED_KERNEL(name, capped || starts ? 1 : 3 - W) { \
		__shared__ quad room[TILE * ROW / 4], tile[TILE * ROW / 4]; \
		gradient<W, capped, starts>(a, &room[0].x, &tile[0].x); \
	}

#endif
