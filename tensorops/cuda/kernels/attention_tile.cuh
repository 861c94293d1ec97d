// Attention: o = dropout(softmax(scores))·v.
#ifndef TROUPE_ATTENTION_TILE_CUH
#define TROUPE_ATTENTION_TILE_CUH

#include "attention.cuh"

// row_max and row_sum reduce what the 16 threads of a row of the tile have.
__device__ inline float row_max(float v) {
	for (int lanes = 8; lanes > 0; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lanes));
	return v;
}

__device__ inline float row_sum(float v) {
	for (int lanes = 8; lanes > 0; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
	return v;
}

// attend computes a tile of queries: one pass over the keys that they see, with a running
// maximum and sum of each softmax (Milakov, Gimelshein 2018, arXiv 1805.02867).
template <int W, bool capped, bool starts> __device__ inline void attend(const attention_args &a, float *room, float *p) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tq + TILE - 1) / TILE;
	const i64 place = blockIdx.x / tiles; // of sequence and head
	const int sequence = (int)(place / s.heads), head = (int)(place % s.heads), kv_head = head / (s.heads / s.kv_heads);
	const int query0 = (tiles - 1 - (int)(blockIdx.x % tiles)) * TILE; // those that see most begin first
	const int c0 = (int)blockIdx.y * W * TILE;
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

	const rows q = rows_of(a.q, a.q_stride, sequence, s.tq, query0, head, s.width);
	float o[W][4][4] = {};
	float top[4] = {LOWEST, LOWEST, LOWEST, LOWEST}, sum[4] = {0, 0, 0, 0};
	const int end = end_of_keys(s, query0 + TILE < s.tq ? query0 + TILE : s.tq);
	for (int key0 = tile_from<starts>(s, sequence, query0, TILE, TILE) * TILE; key0 < end; key0 += TILE) {
		float score[4][4];
		dot_rows(score, q, rows_of(a.k, a.k_stride, sequence, s.tk, key0, kv_head, s.width), s, room);
		UNROLL for (int i = 0; i < 4; i++) {
			const int query = query0 + ty * 4 + i, key = key0 + tx * 4, start = start_of<starts>(s, sequence, query);
			float most = LOWEST;
			UNROLL for (int j = 0; j < 4; j++) {
				score[i][j] = unseen<starts>(s, query, key + j, start) ? LOWEST : scored<capped>(s, score[i][j]);
				most = fmaxf(most, score[i][j]);
			}
			most = fmaxf(top[i], row_max(most));
			const float fade = expf(top[i] - most);
			float added = 0;
			UNROLL for (int j = 0; j < 4; j++) {
				score[i][j] = unseen<starts>(s, query, key + j, start) ? 0 : expf(score[i][j] - most);
				added += score[i][j];
			}
			sum[i] = sum[i] * fade + row_sum(added);
			top[i] = most;
			UNROLL for (int w = 0; w < W; w++)
				UNROLL for (int j = 0; j < 4; j++) o[w][i][j] *= fade;
			if (s.dropped) {
				float factors[4];
				factors_at(factors, s, place, query, key);
				UNROLL for (int j = 0; j < 4; j++) score[i][j] *= factors[j];
			}
		}
		put_columns(p, score);
		add_product<W>(o, p, rows_of(a.v, a.v_stride, sequence, s.tk, key0, kv_head, s.width), c0, s, room);
	}
	UNROLL for (int i = 0; i < 4; i++) {
		const int query = query0 + ty * 4 + i;
		if (query < s.tq && tx == 0 && c0 == 0) a.lse[place * s.tq + query] = top[i] + logf(sum[i]);
		UNROLL for (int w = 0; w < W; w++)
			UNROLL for (int j = 0; j < 4; j++) o[w][i][j] = sum[i] == 0 ? 0 : o[w][i][j] / sum[i]; // 0: it sees no key
	}
	write_window<W>(a.o + ((i64)sequence * s.tq + query0) * a.o_stride + (i64)head * s.width, a.o_stride, s.tq - query0, o, c0, s);
}

#define ATTENTION(name, W, capped, starts) \
	typedef attention_args name##_args; \
	TILED_KERNEL(name, capped ? 1 : 3 - W) { \
		__shared__ quad room[TILE * ROW / 4], p[TILE * ROW / 4]; \
		attend<W, capped, starts>(a, &room[0].x, &p[0].x); \
	}

#endif
