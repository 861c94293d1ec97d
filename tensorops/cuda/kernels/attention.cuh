// What attention and its gradient have in common: products of tiles of 64 queries and 64
// keys, in the manner of FlashAttention-2 (Dao 2023, arXiv 2307.08691). No matrix of all
// queries by all keys is stored; scores are computed again where they are needed.
//
// A block has 16 × 16 threads (ty, tx). Of a tile each has the 4 rows from
// 4·ty on and the 4 columns from 4·tx on. Heads may be of any width: products over the
// channels take CHUNK of them at a time, and of results that have channels for columns a
// block computes a window of 64 or 128, which the grid's y says.
#ifndef TROUPE_ATTENTION_CUH
#define TROUPE_ATTENTION_CUH

#include "rng.cuh"
#include "tile.cuh"

#define TILE 64
#define ROW 68   // floats from one row of a tile in shared memory to the next: more than TILE, so that columns are not all in one bank
#define CHUNK 32 // channels of two tiles fill the room of one tile's 64 channels
#define LOWEST (-3.402823466e38f)

// The sizes of launch_attention.go.
struct attention_sizes {
	dropout mask; // if dropped
	const int *starts; // of each query's document, if there are any: keys before it are hidden
	const int *oldest, *ends; // if there are: what attention_starts makes of them
	int tq, tk, heads, kv_heads, width; // width: channels of a head
	float scale; // of the scores
	int dropped;
	int quads; // quads of every matrix are aligned
	int window; // keys that a query sees at most; 0: all
	int reach; // the same, and more than any key is behind a query for all
	int mask_queries, mask_keys; // of a sequence, in the addresses of the mask
	float cap, inside; // soft cap of the scores, 0: none; scale / cap
	int offset; // position of the first query, where that of the first key is 0: tk − tq, or if all keys come before the queries more
	int pad;
};

struct attention_args {
	float *o, *lse;
	const float *q, *k, *v;
	i64 o_stride, q_stride, k_stride, v_stride;
	attention_sizes s;
};

struct attention_grad_args {
	float *dq, *dk, *dv;
	const float *d_o, *q, *k, *v, *o, *lse;
	float *delta;
	i64 dq_stride, dk_stride, dv_stride, d_o_stride, q_stride, k_stride, v_stride, o_stride;
	i64 queries; // in all: sequences × heads × tq
	attention_sizes s;
};

// rows are the rows of a head's matrix from some row on.
struct rows {
	const float *at;
	i64 stride;
	int count; // of those that exist; others count as 0
};

// rows_of are the rows from the given one on of head's matrix in a sequence of length rows.
__device__ inline rows rows_of(const float *m, i64 stride, int sequence, int length, int row, int head, int width) {
	return rows{m + ((i64)sequence * length + row) * stride + (i64)head * width, stride, length - row};
}

// first_seen is the first key that a query sees. It may be below 0.
__device__ inline int first_seen(const attention_sizes &s, int query) {
	return s.window ? query + s.offset + 1 - s.window : 0;
}

// end_of_keys is behind the last key that queries before last see.
__device__ inline int end_of_keys(const attention_sizes &s, int last) {
	const int end = last + s.offset;
	return end < s.tk ? end : s.tk;
}

// first_tile is the first key of the tile, of that many keys, in which a query sees its first.
__device__ inline int first_tile(const attention_sizes &s, int query, int keys) {
	const int first = first_seen(s, query);
	return first > 0 ? first / keys * keys : 0;
}

// end_of_window is behind the last query that sees a key.
__device__ inline int end_of_window(const attention_sizes &s, int key) {
	const int end = key - s.offset + s.reach;
	return end < s.tq ? end : s.tq;
}

// start_of is where a query's document starts.
template <bool starts> __device__ inline int start_of(const attention_sizes &s, int sequence, int query) {
	if (!starts || query >= s.tq) return 0;
	const int start = s.starts[(i64)sequence * s.tq + query];
	return start > 0 ? start : 0;
}

// tile_from is the first tile of keys in which a tile of queries, from query0 on, sees any, or the last that is not
// after the queries.
template <bool starts> __device__ inline int tile_from(const attention_sizes &s, int sequence, int query0, int queries, int keys) {
	if (!starts) return first_tile(s, query0, keys) / keys;
	return s.oldest[sequence * ((s.tq + queries - 1) / queries) + query0 / queries];
}

// tiles_to is where the tiles of queries end that see any of a tile of keys.
template <bool starts> __device__ inline int tiles_to(const attention_sizes &s, int sequence, int tile, int queries, int keys) {
	if (!starts) return (end_of_window(s, tile * keys + keys - 1) + queries - 1) / queries;
	return s.ends[sequence * ((s.tk + keys - 1) / keys) + tile];
}

// unseen reports whether the mask of causality, the window, or the query's start hides a key from a query, or one of
// them does not exist.
template <bool starts> __device__ inline bool unseen(const attention_sizes &s, int query, int key, int start) {
	// How far behind the query the key is: of a later key, more than any window.
	const u32 behind = (u32)(query + s.offset - key);
	return query >= s.tq || key >= s.tk || behind >= (u32)s.reach || (starts && key < start);
}

// scored is the score of a product of a query and a key.
template <bool capped> __device__ inline float scored(const attention_sizes &s, float product) {
	return capped ? s.cap * tanhf(product * s.inside) : product * s.scale;
}

// slope_at is the derivative of scored by the product, where that is the score.
template <bool capped> __device__ inline float slope_at(const attention_sizes &s, float score) {
	if (!capped) return s.scale;
	const float part = score / s.cap;
	return (1 - part * part) * s.scale;
}

// factors_at are the dropout factors of four probabilities from a key on; place is that of
// sequence and head among all.
__device__ inline void factors_at(float factors[4], const attention_sizes &s, i64 place, int query, int key) {
	// There are fewer than 2³² rows: see attentionSizesOf.
	dropout_factors(factors, s.mask, (u64)((u32)place * (u32)s.mask_queries + (u32)query) * (u32)s.mask_keys + (u32)key);
}

// load_channels reads CHUNK channels from c0 on of a tile of rows, as [CHUNK][ROW].
__device__ inline void load_channels(float *tile, const rows &m, int c0, int width, bool aligned) {
	const int stride = (int)m.stride; // a tile has fewer than 2³¹ elements
	for (int i = again((int)threadIdx.x); i < TILE * CHUNK / 4; i += THREADS) {
		const int row = i / (CHUNK / 4), c = i % (CHUNK / 4) * 4;
		quad v = {0, 0, 0, 0};
		if (row < m.count) v = load_quad(m.at + (row * stride + c0 + c), width - c0 - c, aligned);
		tile[(c + 0) * ROW + row] = v.x;
		tile[(c + 1) * ROW + row] = v.y;
		tile[(c + 2) * ROW + row] = v.z;
		tile[(c + 3) * ROW + row] = v.w;
	}
}

// load_rows reads 64 channels from c0 on of a tile of rows, as [TILE][ROW].
__device__ inline void load_rows(float *tile, const rows &m, int c0, int width, bool aligned) {
	const int stride = (int)m.stride;
	for (int i = again((int)threadIdx.x); i < TILE * TILE / 4; i += THREADS) {
		const int row = i / (TILE / 4), c = i % (TILE / 4) * 4;
		quad v = {0, 0, 0, 0};
		if (row < m.count) v = load_quad(m.at + (row * stride + c0 + c), width - c0 - c, aligned);
		aligned_at(tile + row * ROW + c) = v;
	}
}

// add_outer adds a column's part of a product of tiles: the thread's 4 of x by its 4 of y.
__device__ inline void add_outer(float sum[4][4], const float *x, const float *y) {
	const quad p = aligned_at(x + threadIdx.x / 16 * 4), q = aligned_at(y + threadIdx.x % 16 * 4);
	const float a[4] = {p.x, p.y, p.z, p.w}, b[4] = {q.x, q.y, q.z, q.w};
	UNROLL for (int i = 0; i < 4; i++)
		UNROLL for (int j = 0; j < 4; j++) sum[i][j] += a[i] * b[j];
}

// dot_rows computes the scalar products of the rows of x with those of y, over all channels.
// room has TILE × ROW floats, which nobody reads any more when all threads come here.
__device__ inline void dot_rows(float sum[4][4], const rows &x, const rows &y, const attention_sizes &s, float *room) {
	float *const other = room + CHUNK * ROW;
	UNROLL for (int i = 0; i < 4; i++)
		UNROLL for (int j = 0; j < 4; j++) sum[i][j] = 0;
	for (int c0 = 0; c0 < s.width; c0 += CHUNK) {
		load_channels(room, x, c0, s.width, s.quads);
		load_channels(other, y, c0, s.width, s.quads);
		__syncthreads();
		UNROLL_FOUR for (int c = 0; c < CHUNK; c++) add_outer(sum, room + c * ROW, other + c * ROW);
		__syncthreads();
	}
}

// add_product adds pᵀ·m to a window of channels from c0 on: p, as [TILE][ROW], has a row for
// each row of m. room is as for dot_rows; p has been written before the last barrier or is
// by the time of the first here.
template <int W> __device__ inline void add_product(float sum[W][4][4], const float *p, const rows &m, int c0, const attention_sizes &s, float *room) {
	UNROLL for (int w = 0; w < W; w++) {
		load_rows(room, m, c0 + w * TILE, s.width, s.quads);
		__syncthreads();
		UNROLL_FOUR for (int r = 0; r < TILE; r++) add_outer(sum[w], p + r * ROW, room + r * ROW);
		__syncthreads();
	}
}

// put_rows stores the thread's part of a tile as rows, in shared memory.
__device__ inline void put_rows(float *tile, float v[4][4]) {
	UNROLL for (int i = 0; i < 4; i++)
		aligned_at(tile + (threadIdx.x / 16 * 4 + i) * ROW + threadIdx.x % 16 * 4) = quad{v[i][0], v[i][1], v[i][2], v[i][3]};
}

// put_columns stores it transposed.
__device__ inline void put_columns(float *tile, float v[4][4]) {
	UNROLL for (int j = 0; j < 4; j++)
		aligned_at(tile + (threadIdx.x % 16 * 4 + j) * ROW + threadIdx.x / 16 * 4) = quad{v[0][j], v[1][j], v[2][j], v[3][j]};
}

// write_window writes the thread's part of a window of channels from c0 on.
template <int W> __device__ inline void write_window(float *m, i64 stride, int count, float v[W][4][4], int c0, const attention_sizes &s) {
	UNROLL for (int w = 0; w < W; w++) {
		const int c = c0 + w * TILE + threadIdx.x % 16 * 4;
		UNROLL for (int i = 0; i < 4; i++) {
			const int row = threadIdx.x / 16 * 4 + i;
			if (row < count) store_quad(m + row * stride + c, quad{v[w][i][0], v[w][i][1], v[w][i][2], v[w][i][3]}, s.width - c, s.quads);
		}
	}
}

#endif
