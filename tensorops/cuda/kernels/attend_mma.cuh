// Attention on the tensor cores: o = dropout(softmax(scores))·v. Queries that come after all keys see all of them, in whole tiles.
#ifndef TROUPE_ATTEND_MMA_CUH
#define TROUPE_ATTEND_MMA_CUH

#include "attention_mma.cuh"

#define ATTEND_QUERIES_64 64 // of a block, for heads of up to 64 channels
#define ATTEND_QUERIES_128 64
#define ATTEND_SHARED_64 32768 // with dropout, the half
#define ATTEND_SHARED_128 65536
#define NONE_SEEN (-1e37f) // above what hide leaves of a score, times its scale, and below all others

struct attention_mma_args {
	float *o, *lse; // o is bfloat16 if halves says so
	const bf16 *q, *k, *v;
	i64 o_stride, q_stride, k_stride, v_stride;
	attention_sizes s;
	int step; // from one head of q, k and v to the next
	u32 halves;
};

// Of keys and values there are two tiles each, one for computing and one that is filled. The
// queries are there first, until the lanes have them. With dropout, whose masks take registers
// too, there are fewer keys at a time.
template <int D, bool dropped> struct attend_shared {
	static constexpr int keys = dropped ? 32 : 64;
	uint4 k[2][keys * D / 8], v[2][keys * D / 8];
};

static_assert(sizeof(attend_shared<64, false>) == ATTEND_SHARED_64 && sizeof(attend_shared<128, false>) == ATTEND_SHARED_128 &&
	sizeof(attend_shared<64, true>) == ATTEND_SHARED_64 / 2 && sizeof(attend_shared<128, true>) == ATTEND_SHARED_128 / 2, "launch_attention_mma.go asks for as much");

// max_of_row and sum_of_row reduce what the four lanes of a row have.
__device__ inline float max_of_row(float v) {
	v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ inline float sum_of_row(float v) {
	v += __shfl_xor_sync(0xffffffffu, v, 1);
	return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// kept_keys draws dropout's mask for a lane's parts of 16 queries from query0 on by N keys
// from key0 on: bit 8·n + 4·r + j is that of row r and column j of part n.
template <int N> __device__ inline u32 kept_keys(const attention_sizes &s, i64 place, int query0, int key0) {
	u32 bits = 0;
	ROLLED for (int i = 0; i < N / 8; i++)
		bits |= four_kept(s, place, query0 + lane_row() + i % 2 * 2, key0 + i / 2 * 16 + lane_column()) << (4 * i);
	return bits;
}

// softmax is the running one of a lane's two queries (Milakov, Gimelshein 2018, arXiv
// 1805.02867), to base 2. Of the sums each of a row's four lanes has a part.
struct softmax {
	float top[2], sum[2];
};

// weigh turns the scores of a tile of keys from key0 on into probabilities, up to their
// common factor; kept is dropout's mask. It returns by what earlier ones are to be multiplied.
template <int KEYS, bool dropped, bool capped, bool starts> __device__ inline void weigh(part p[KEYS / 16], softmax &of, float fade[2], const attention_sizes &s, u32 kept, int sequence, int query0, int key0) {
	const float scale = capped ? 1 : s.scale * LOG2_E;
	if (capped)
		UNROLL for (int n = 0; n < KEYS / 16; n++) cap_all(p[n], s);
	const int beyond = key0 - (query0 + s.offset);
	if (beyond + KEYS - 1 > 0) // for the first of 16 queries
		UNROLL for (int n = 0; n < KEYS / 16; n++) hide(p[n], beyond + 16 * n + lane_column() - lane_row(), -2, 1);
	const int before = first_seen(s, query0 + 15) - key0;
	if (s.window && before > 0) // for the last
		UNROLL for (int n = 0; n < KEYS / 16; n++) hide(p[n], before - 15 - 16 * n - lane_column() + lane_row(), 2, -1);
	if (starts)
		UNROLL for (int r = 0; r < 2; r++) {
			const int hidden = start_of<starts>(s, sequence, query0 + lane_row() + 2 * r) - key0 - lane_column();
			UNROLL for (int n = 0; n < KEYS / 16; n++)
				UNROLL for (int j = 0; j < 4; j++)
					if (16 * n + j < hidden) p[n].at[r][j] = LOWEST;
		}
	UNROLL for (int r = 0; r < 2; r++) {
		float most = LOWEST;
		UNROLL for (int n = 0; n < KEYS / 16; n++) {
			float *const v = p[n].at[r];
			UNROLL for (int j = 0; j < 4; j++) most = fmaxf(most, v[j]);
		}
		most = fmaxf(of.top[r], max_of_row(most) * scale);
		fade[r] = exp2_of(of.top[r] - most);
		of.top[r] = most;
		of.sum[r] *= fade[r];
		if (most < NONE_SEEN) most = 0;
		UNROLL for (int n = 0; n < KEYS / 16; n++) {
			float *const v = p[n].at[r];
			UNROLL for (int j = 0; j < 4; j++) {
				v[j] = exp2_of(v[j] * scale - most);
				of.sum[r] += v[j];
			}
			if (dropped)
				UNROLL for (int j = 0; j < 4; j++) v[j] *= kept >> (8 * n + 4 * r + j) & 1 ? s.mask.scale : 0;
		}
	}
}

// attend computes a tile of queries, 16 in each warp.
template <int D, bool dropped, bool capped, bool starts> __device__ inline void attend(const attention_mma_args &a, attend_shared<D, dropped> &shared) {
	typedef half_tile<D> form;
	const int QUERIES = 16 * MMA_WARPS, KEYS = attend_shared<D, dropped>::keys;
	static_assert(QUERIES == (D == 64 ? ATTEND_QUERIES_64 : ATTEND_QUERIES_128) && QUERIES <= 4 * KEYS, "launch_attention_mma.go knows the tiles, and the queries find room");
	const attention_sizes &s = a.s;
	const int tiles = (s.tq + QUERIES - 1) / QUERIES, places = gridDim.x / tiles; // of sequence and head
	const int place = (int)blockIdx.x % places, sequence = place / s.heads, head = place % s.heads, kv_head = head / (s.heads / s.kv_heads);
	const int query0 = (tiles - 1 - (int)blockIdx.x / places) * QUERIES; // those that see most begin first
	const int row0 = (int)threadIdx.x / 32 * 16, own = query0 + row0;  // the warp's first query

	const int end = end_of_keys(s, query0 + QUERIES < s.tq ? query0 + QUERIES : s.tq), from = tile_from<starts>(s, sequence, query0, QUERIES, KEYS) * KEYS;

	copy_rows<D, QUERIES>(shared.k[0], half_rows_of(a.q, a.q_stride, sequence, s.tq, query0, head, a.step), s.width);
	wait_for_copies();
	__syncthreads();
	left q[D / 16];
	UNROLL for (int i = 0; i < D / 16; i++) q[i] = form::left_rows(shared.k[0], row0, 16 * i);
	__syncthreads(); // all have their queries
	copy_rows<D, KEYS>(shared.k[0], half_rows_of(a.k, a.k_stride, sequence, s.tk, from, kv_head, a.step), s.width);
	copy_rows<D, KEYS>(shared.v[0], half_rows_of(a.v, a.v_stride, sequence, s.tk, from, kv_head, a.step), s.width);

	part o[D / 16] = {};
	softmax of = {{LOWEST, LOWEST}, {0, 0}};
	for (int key0 = from, now = 0; key0 < end; key0 += KEYS, now ^= 1) {
		u32 kept = 0;
		const int first = again(own); // of the warp's queries
		const bool sees = key0 >= first_tile(s, first, KEYS) && first < s.tq && key0 < first + 16 + s.offset;
		if (dropped && sees) kept = kept_keys<KEYS>(s, place, own, key0);
		wait_for_copies();
		__syncthreads(); // all copies are there, and the other tiles have been read
		if (key0 + KEYS < end) {
			copy_rows<D, KEYS>(shared.k[now ^ 1], half_rows_of(a.k, a.k_stride, sequence, s.tk, key0 + KEYS, kv_head, a.step), s.width);
			copy_rows<D, KEYS>(shared.v[now ^ 1], half_rows_of(a.v, a.v_stride, sequence, s.tk, key0 + KEYS, kv_head, a.step), s.width);
		}
		if (!sees) continue;
		part scores[KEYS / 16] = {};
		UNROLL for (int i = 0; i < D / 16; i++) {
			UNROLL for (int n = 0; n < KEYS / 16; n++) multiply_add(scores[n], q[i], form::right_rows(shared.k[now], 16 * n, 16 * i));
		}
		float fade[2];
		weigh<KEYS, dropped, capped, starts>(scores, of, fade, s, kept, starts ? again(place) / s.heads : 0, own, key0);
		UNROLL for (int i = 0; i < D / 16; i++)
			UNROLL for (int j = 0; j < 4; j++) o[i].at[0][j] *= fade[0], o[i].at[1][j] *= fade[1];
		UNROLL for (int n = 0; n < KEYS / 16; n++) {
			const left p = left_of(scores[n]);
			UNROLL for (int i = 0; i < D / 16; i++) multiply_add(o[i], p, form::right_columns(shared.v[now], 16 * n, 16 * i));
		}
	}
	const int to = again(place), to_sequence = to / s.heads, to_head = to % s.heads; // once more, so that the loop has their registers
	UNROLL for (int r = 0; r < 2; r++) {
		const i64 query = own + lane_row() + 2 * r;
		const float sum = sum_of_row(of.sum[r]);
		if (query < s.tq && lane_column() == 0) a.lse[(i64)to * s.tq + query] = (of.top[r] + log2f(sum)) / LOG2_E;
		write_row<D / 16>(a.o, a.halves, ((i64)to_sequence * s.tq + query) * a.o_stride + (i64)to_head * s.width, query < s.tq, o, r, starts && sum == 0 ? 0 : 1 / sum, 0, s);
	}
}

#define ATTENTION(name, D, blocks, dropped, capped, starts) \
	typedef attention_mma_args name##_args; \
	MMA_KERNEL(name, blocks) { \
		DYNAMIC_SHARED(shared); \
		attend<D, dropped, capped, starts>(a, *(attend_shared<D, dropped> *)shared); \
	}

#endif
