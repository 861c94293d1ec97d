// The gradient of attention on the tensor cores, by the formulas of attention_grad.cuh, with
// five products of each tile of queries and each of keys: the scores once more, the gradient
// of the probabilities, and from both dv, dk and dq.
//
// A block has a tile of keys and goes through the queries that see any, in ascending order.
// It keeps dk and dv; to dq of the queries it adds its part, in memory, in its turn: tiles of
// keys in descending order, so that the bits are the same whatever block comes first. Where
// the blocks of a head begin together nobody waits: a query's own tile of keys meets it in its
// first step, the one before in its second, and so on.
//
// Waiting cannot end in a deadlock. A block takes a ticket when it begins, and with it its
// tile: of each head the last keys first. It waits for the next tile of the same head alone,
// whose block has the ticket before and so is on a multiprocessor or has ended. Of the blocks
// under way, that with the lowest ticket waits for none.
#ifndef TROUPE_ATTENTION_GRAD_MMA_CUH
#define TROUPE_ATTENTION_GRAD_MMA_CUH

#include "attention_mma.cuh"
#include "turns.cuh"

#define GRAD_KEYS_64 128 // of a block, for heads of up to 64 channels
#define GRAD_KEYS_128 64
#define GRAD_QUERIES_64 64 // in shared memory at a time
#define GRAD_QUERIES_128 32
#define GRAD_SHARED_64 82944
#define GRAD_SHARED_128 70144
#define NOTHING (-1e37f) // below every logarithm of a sum, but for that of a query that sees no key

// SCARCE: NVRTC 12.9 runs out of registers for Blackwell, and puts some aside: there what follows from the
// block's tile is computed again, which for others takes more of them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define SCARCE true
#else
#define SCARCE false
#endif

struct attention_grad_mma_args {
	float *dq, *dk, *dv; // bfloat16 if bits 0, 1 and 2 of halves say so
	const float *d_o, *o; // by bits 3 and 4
	const bf16 *half_d_o, *q, *k, *v;
	const float *lse;
	float *delta;
	quad *sums; // of dq, as lanes have it
	u32 *turns; // the next ticket; then, for each tile of queries, how many blocks have added to it
	i64 dq_stride, dk_stride, dv_stride, d_o_stride, o_stride, half_d_o_stride, q_stride, k_stride, v_stride;
	i64 queries, counters; // in all: sequences × heads × tq; turns
	attention_sizes s;
	int step; // from one head of half_d_o, q, k and v to the next
	u32 halves;
};

// Of queries and gradients of the output there are two tiles each, one for computing and one
// that is filled.
template <int D, int M, int QUERIES> struct gradient_shared {
	static constexpr int keys = 16 * M * MMA_WARPS;
	uint4 k[keys * D / 8], v[keys * D / 8];
	uint4 q[2][QUERIES * D / 8], d_o[2][QUERIES * D / 8];
	uint4 ds[keys * QUERIES / 8]; // gradients of the scores: a row for each key
	float lse[2][QUERIES], delta[2][QUERIES];
};

typedef gradient_shared<64, 2, GRAD_QUERIES_64> shared_64;
typedef gradient_shared<128, 1, GRAD_QUERIES_128> shared_128;
static_assert(shared_64::keys == GRAD_KEYS_64 && shared_128::keys == GRAD_KEYS_128, "launch_attention_mma.go knows the tiles");
static_assert(sizeof(shared_64) == GRAD_SHARED_64 && sizeof(shared_128) == GRAD_SHARED_128, "and asks for as much");

// kept_queries draws dropout's mask for a lane's parts of 16·M keys from key0 on by BAND queries
// from query0 on: bit 8·n + 4·r + j is that of row r and column j of part n, where those of the
// same keys follow each other. Random words come for four keys at a time, which two lanes have:
// each draws for two of the four queries that they share.
template <int M, int BAND> __device__ inline u32 kept_queries(const attention_sizes &s, i64 place, int query0, int key0) {
	const int half = lane_row() % 2;
	u32 bits = 0;
	ROLLED for (int n = 0; n < M * BAND / 16; n++) {
		const int query = query0 + 16 * (n % (BAND / 16)) + lane_column(), key = key0 + 16 * (n / (BAND / 16)) + lane_row() / 4 * 4;
		u32 drawn = 0; // bit 4·(query of two) + key of four
		ROLLED for (int i = 0; i < 2; i++) drawn |= four_kept(s, place, query + 2 * half + i, key) << (4 * i);
		const u32 other = __shfl_xor_sync(0xffffffffu, drawn, 4);
		const u32 of_queries[2] = {half ? other : drawn, half ? drawn : other};
		UNROLL for (int r = 0; r < 2; r++)
			UNROLL for (int j = 0; j < 4; j++) bits |= (of_queries[j / 2] >> (j % 2 * 4 + half + 2 * r) & 1) << (8 * n + 4 * r + j);
	}
	return bits;
}

// gradient computes dk and dv of a tile of keys, 16·M in each warp, and its part of dq: the
// heads that share the keys, in ascending order, and of each the queries that see any. Of
// sequences and heads place is that among all.
template <int D, int M, int QUERIES, bool dropped, bool capped, bool starts> struct gradient {
	typedef half_tile<D> form;
	typedef half_tile<QUERIES> form_ds;
	typedef gradient_shared<D, M, QUERIES> memory;
	static constexpr int KEYS = memory::keys;
	static constexpr int BAND = dropped || capped || starts ? 16 : 32, N = BAND / 16; // queries whose scores the lanes have at a time: masks, slopes and starts take registers too

	const attention_grad_mma_args &a;
	memory &shared;

	// fetch begins copies of a tile of queries, and of what belongs to them.
	__device__ void fetch(int now, int place, int query0) const {
		const attention_sizes &s = a.s;
		const int sequence = place / s.heads, head = place % s.heads;
		copy_rows<D, QUERIES>(shared.q[now], half_rows_of(a.q, a.q_stride, sequence, s.tq, query0, head, a.step), s.width);
		copy_rows<D, QUERIES>(shared.d_o[now], half_rows_of(a.half_d_o, a.half_d_o_stride, sequence, s.tq, query0, head, a.step), s.width);
		if (threadIdx.x < 2 * QUERIES) {
			const int query = threadIdx.x % QUERIES;
			const bool of_lse = threadIdx.x < QUERIES, there = query0 + query < s.tq;
			const i64 at = (i64)place * s.tq + (there ? query0 + query : 0);
			begin_copy<4>(of_lse ? &shared.lse[now][query] : &shared.delta[now][query], of_lse ? a.lse + at : a.delta + at, there ? 4 : 0);
		}
	}

	// factor is dropout's of a probability.
	__device__ float factor(u32 kept, int bit) const { return !dropped ? 1 : kept >> bit & 1 ? a.s.mask.scale : 0; }

	// sum_of is the logarithm of a query's sum, to base 2: 0 of one that sees no key.
	__device__ float sum_of(float lse) const { return starts && lse < NOTHING ? 0 : lse * LOG2_E; }

	// weigh turns scores into probabilities, and returns them times dropout's factors. Under a soft cap it first
	// makes the scores of products, and says by what their gradients are to be multiplied.
	__device__ left weigh(part &p, part &bend, const float lse[4], u32 kept, int sequence, int query, int key) const {
		const attention_sizes &s = a.s;
		const float scale = capped ? 1 : s.scale * LOG2_E;
		if (capped) {
			cap_all(p, s);
			const float whole = 1 / (s.cap * LOG2_E);
			UNROLL for (int r = 0; r < 2; r++)
				UNROLL for (int j = 0; j < 4; j++) {
					const float part_of_cap = p.at[r][j] * whole;
					bend.at[r][j] = 1 - part_of_cap * part_of_cap;
				}
		}
		const int beyond = key - (query + again(s.offset));
		if (beyond + 15 > 0) hide(p, again(beyond) + lane_row() - lane_column(), 2, -1);
		const int before = first_seen(s, query) - key;
		if (s.window && before + 15 > 0) hide(p, before - lane_row() + lane_column(), -2, 1);
		if (starts)
			UNROLL for (int j = 0; j < 4; j++) {
				const int hidden = start_of<starts>(s, sequence, query + lane_column() + j) - key - lane_row();
				UNROLL for (int r = 0; r < 2; r++)
					if (2 * r < hidden) p.at[r][j] = LOWEST;
			}
		part times;
		UNROLL for (int r = 0; r < 2; r++) {
			UNROLL for (int j = 0; j < 4; j++) {
				p.at[r][j] = exp2_of(p.at[r][j] * scale - lse[j]);
				times.at[r][j] = p.at[r][j] * factor(kept, 4 * r + j);
			}
		}
		return left_of(times);
	}

	// slopes are the gradients of the scores but for their scale: of those of the probabilities,
	// which have had delta taken off them already where there is no dropout.
	__device__ left slopes(const part &p, const part &bend, part dp, const quad &delta, u32 kept) const {
		const float d[4] = {delta.x, delta.y, delta.z, delta.w};
		UNROLL for (int r = 0; r < 2; r++)
			UNROLL for (int j = 0; j < 4; j++) {
				dp.at[r][j] = p.at[r][j] * (dropped ? dp.at[r][j] * factor(kept, 4 * r + j) - d[j] : dp.at[r][j]);
				if (capped) dp.at[r][j] *= bend.at[r][j];
			}
		return left_of(dp);
	}

	// of_band adds BAND queries of the tile, from the given one on, to dk and dv, and
	// stores the gradients of their scores.
	__device__ void of_band(part dk[M][D / 16], part dv[M][D / 16], int now, int band, int place, int query, int key0) const {
		const attention_sizes &s = a.s;
		const int row0 = (int)threadIdx.x / 32 * 16 * M, own = key0 + row0; // the warp's first key
		if (query + BAND - 1 + s.offset >= own && first_seen(s, query) < own + 16 * M) {
			u32 kept = 0;
			if (dropped) kept = kept_queries<M, BAND>(s, place, query, own);
			part p[M][N] = {};
			UNROLL for (int i = 0; i < D / 16; i++) {
				left k[M];
				UNROLL for (int m = 0; m < M; m++) k[m] = form::left_rows(shared.k, row0 + 16 * m, 16 * i);
				UNROLL for (int n = 0; n < N; n++) {
					const right q = form::right_rows(shared.q[now], band + 16 * n, 16 * i);
					UNROLL for (int m = 0; m < M; m++) multiply_add(p[m][n], k[m], q);
				}
			}
			part dp[M][N] = {};
			quad delta[N];
			UNROLL for (int n = 0; n < N; n++) {
				delta[n] = aligned_at(&shared.delta[now][band + 16 * n + lane_column()]);
				if (!dropped) // else each is to be multiplied by its factor first
					UNROLL for (int m = 0; m < M; m++)
						UNROLL for (int r = 0; r < 2; r++) {
							float *const v = dp[m][n].at[r];
							v[0] = -delta[n].x, v[1] = -delta[n].y, v[2] = -delta[n].z, v[3] = -delta[n].w;
						}
			}
			UNROLL for (int i = 0; i < D / 16; i++) {
				left v[M];
				UNROLL for (int m = 0; m < M; m++) v[m] = form::left_rows(shared.v, row0 + 16 * m, 16 * i);
				UNROLL for (int n = 0; n < N; n++) {
					const right d_o = form::right_rows(shared.d_o[now], band + 16 * n, 16 * i);
					UNROLL for (int m = 0; m < M; m++) multiply_add(dp[m][n], v[m], d_o);
				}
			}
			UNROLL for (int n = 0; n < N; n++) {
				const quad l = aligned_at(&shared.lse[now][band + 16 * n + lane_column()]);
				const float lse[4] = {sum_of(l.x), sum_of(l.y), sum_of(l.z), sum_of(l.w)};
				left chances[M], told[M]; // told: the gradients
				UNROLL for (int m = 0; m < M; m++) {
					const u32 of_part = kept >> 8 * (m * N + n);
					part bend;
					chances[m] = weigh(p[m][n], bend, lse, of_part, starts ? again(place) / s.heads : 0, query + 16 * n, own + 16 * m);
					told[m] = slopes(p[m][n], bend, dp[m][n], delta[n], of_part);
					form_ds::put_left(shared.ds, told[m], row0 + 16 * m, band + 16 * n);
				}
				UNROLL for (int i = 0; i < D / 16; i++) {
					const right d_o = form::right_columns(shared.d_o[now], band + 16 * n, 16 * i);
					UNROLL for (int m = 0; m < M; m++) multiply_add(dv[m][i], chances[m], d_o);
					const right q = form::right_columns(shared.q[now], band + 16 * n, 16 * i);
					UNROLL for (int m = 0; m < M; m++) multiply_add(dk[m][i], told[m], q);
				}
			}
			return;
		}
		UNROLL for (int m = 0; m < M; m++)
			UNROLL for (int n = 0; n < N; n++) form_ds::put_left(shared.ds, left{}, row0 + 16 * m, band + 16 * n);
	}

	// A tile of queries meets tiles of keys from the oldest up to the newest.
	__device__ int oldest(int place, int query_tile) const {
		return tile_from<starts>(a.s, starts ? again(place) / a.s.heads : 0, query_tile * QUERIES, QUERIES, KEYS);
	}
	__device__ int newest(int query_tile) const { return (end_of_keys(a.s, last_query(query_tile) + 1) - 1) / KEYS; }
	__device__ int last_query(int query_tile) const { return ((query_tile + 1) * QUERIES < a.s.tq ? (query_tile + 1) * QUERIES : a.s.tq) - 1; }

	// tile_of_queries is the place of one among all heads'.
	__device__ i64 tile_of_queries(int place, int query_tile) const { return (i64)place * ((a.s.tq + QUERIES - 1) / QUERIES) + query_tile; }

	// give_on gives the turn of a tile of queries to the block after that of a tile of keys.
	__device__ void give_on(int place, int query_tile, int tile) const {
		if (threadIdx.x == 0 && tile != oldest(place, query_tile)) give_turn(a.turns + 1 + tile_of_queries(place, query_tile), newest(query_tile) - tile + 1);
	}

	// add_to_queries adds to dq of a tile of queries in this block's turn. A warp has 32 of the
	// queries by 32 channels. Of the sums it reads four at a time, as many as there are registers
	// for: a read behind a write of the same thread does not begin before that.
	__device__ void add_to_queries(int query_tile, int place, int tile) const {
		const attention_sizes &s = a.s;
		const bool begins = tile == newest(query_tile), ends = tile == oldest(place, query_tile);
		const i64 at = tile_of_queries(place, query_tile);
		if (!begins && threadIdx.x == 0) wait_for_turn(a.turns + 1 + at, newest(query_tile) - tile);
		__syncthreads(); // it is our turn, and all gradients of the scores are there
		const int warp = threadIdx.x / 32, queries = QUERIES > 32 ? warp / 2 * 32 : 0, channels = (QUERIES > 32 ? warp % 2 : warp) * 32;
		const int seen = last_query(query_tile) + s.offset - tile * KEYS + 1, limit = seen < KEYS ? seen : KEYS;
		quad *const sums = a.sums + at * 8 * MMA_THREADS + threadIdx.x;
		part dq[2][2] = {};
		UNROLL_FOUR for (int key = 0; key < limit; key += 16) {
			right k[2];
			UNROLL for (int n = 0; n < 2; n++) k[n] = form::right_columns(shared.k, key, channels + 16 * n);
			UNROLL for (int m = 0; m < 2; m++) {
				const left ds = form_ds::left_columns(shared.ds, key, queries + 16 * m);
				UNROLL for (int n = 0; n < 2; n++) multiply_add(dq[m][n], ds, k[n]);
			}
		}
		const int sequence = place / s.heads, head = place % s.heads;
		UNROLL for (int m = 0; m < 2; m++) {
			quad before[4] = {};
			if (!begins)
				UNROLL for (int i = 0; i < 4; i++) before[i] = read_sum(sums + (4 * m + i) * MMA_THREADS);
			UNROLL for (int r = 0; r < 2; r++) {
				UNROLL for (int n = 0; n < 2; n++) {
					float *const v = dq[m][n].at[r];
					const int i = 2 * r + n;
					v[0] += before[i].x, v[1] += before[i].y, v[2] += before[i].z, v[3] += before[i].w;
					if (!ends) write_sum(sums + (4 * m + i) * MMA_THREADS, quad{v[0], v[1], v[2], v[3]});
				}
				const i64 query = query_tile * QUERIES + queries + 16 * m + lane_row() + 2 * r;
				if (ends) write_row<2>(a.dq, a.halves & 1, ((i64)sequence * s.tq + query) * a.dq_stride + (i64)head * s.width, query < s.tq, dq[m], r, s.scale, channels, s);
			}
		}
	}

	// A tile of keys is seen by tiles of queries from the first one up to the end. Both are computed where they are needed.
	__device__ int seen_by(int tile) const {
		const int query = again(tile) * KEYS - a.s.offset;
		return query > 0 ? query / QUERIES : 0;
	}
	__device__ int end(int place, int tile) const {
		return tiles_to<starts>(a.s, starts ? again(place) / a.s.heads : 0, again(tile), QUERIES, KEYS);
	}

	// step goes on to the next tile of queries that see a tile of keys, or to the next head's first.
	__device__ void step(int &place, int &query_tile, int tile) const {
		query_tile = again(query_tile) + 1;
		if (query_tile == end(place, tile)) place++, query_tile = seen_by(tile);
	}

	// first_place is that of the first head that shares a head of keys, computed where it is needed.
	__device__ int first_place(int kv_place) const { return again(kv_place) * (a.s.heads / a.s.kv_heads); }

	__device__ void compute() const {
		const attention_sizes &s = a.s;
		const int tiles = (s.tk + KEYS - 1) / KEYS, group = s.heads / s.kv_heads;
		u32 &ticket = *(u32 *)shared.ds; // nobody needs that memory yet
		if (threadIdx.x == 0) ticket = atomicAdd(a.turns, 1u);
		__syncthreads();
		const int tile = tiles - 1 - (int)(ticket % tiles), kv_place = (int)(ticket / tiles);

		part dk[M][D / 16] = {}, dv[M][D / 16] = {};
		if (seen_by(tile) < end(starts ? first_place(kv_place) : 0, tile)) {
			const int sequence = kv_place / s.kv_heads, kv_head = kv_place % s.kv_heads;
			copy_rows<D, KEYS>(shared.k, half_rows_of(a.k, a.k_stride, sequence, s.tk, again(tile) * KEYS, kv_head, a.step), s.width);
			copy_rows<D, KEYS>(shared.v, half_rows_of(a.v, a.v_stride, sequence, s.tk, again(tile) * KEYS, kv_head, a.step), s.width);
			fetch(0, SCARCE ? first_place(kv_place) : kv_place * group, seen_by(tile) * QUERIES);
			int place = SCARCE ? first_place(kv_place) : kv_place * group, query_tile = seen_by(tile), now = 0;
			const int last = place + group;
			do {
				wait_for_copies();
				__syncthreads(); // all copies are there, the other tiles have been read, and dq is written
				if (query_tile > seen_by(tile)) give_on(place, query_tile - 1, tile);
				else if (place > (SCARCE ? first_place(kv_place) : last - group)) give_on(place - 1, end(place - 1, tile) - 1, tile);
				int next_place = place, next_tile = query_tile;
				step(next_place, next_tile, tile);
				if (next_place < (SCARCE ? first_place(kv_place + 1) : last)) fetch(now ^ 1, next_place, next_tile * QUERIES);
				ROLLED for (int band = 0; band < QUERIES; band += BAND) of_band(dk, dv, now, band, place, query_tile * QUERIES + band, again(tile) * KEYS);
				add_to_queries(query_tile, place, tile);
				step(place, query_tile, tile);
				now ^= 1;
			} while (place < (SCARCE ? first_place(kv_place + 1) : last));
			__syncthreads();
			give_on(place - 1, end(place - 1, tile) - 1, tile);
		}
		// Computed once more, so that the loop has their registers.
		const int own = again(tile) * KEYS + (int)threadIdx.x / 32 * 16 * M, by_now = again(kv_place), sequence = by_now / s.kv_heads, kv_head = by_now % s.kv_heads;
		UNROLL for (int m = 0; m < M; m++) {
			UNROLL for (int r = 0; r < 2; r++) {
				const i64 key = own + 16 * m + lane_row() + 2 * r, row = (i64)sequence * s.tk + key;
				write_row<D / 16>(a.dk, a.halves & 2, row * a.dk_stride + (i64)kv_head * s.width, key < s.tk, dk[m], r, s.scale, 0, s);
				write_row<D / 16>(a.dv, a.halves & 4, row * a.dv_stride + (i64)kv_head * s.width, key < s.tk, dv[m], r, 1, 0, s);
			}
		}
	}
};

#define GRADIENT(name, D, M, QUERIES, dropped, capped, starts) \
	typedef attention_grad_mma_args name##_args; \
	MMA_KERNEL(name, 2) { \
		typedef gradient<D, M, QUERIES, dropped, capped, starts> work; \
		DYNAMIC_SHARED(shared); \
		work{a, *(work::memory *)shared}.compute(); \
	}

#endif
