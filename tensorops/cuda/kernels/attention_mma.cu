// Causal attention on the tensor cores: o = dropout(softmax(q·kᵀ·scale))·v.
#include "attention_mma.cuh"

#define STEP 64 // keys, in shared memory at a time
#define NONE_SEEN (-1e37f) // above what hide leaves of a score, times its scale, and below all others

// max_of_row and sum_of_row reduce what the four lanes of a row have.
__device__ inline float max_of_row(float v) {
	v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ inline float sum_of_row(float v) {
	v += __shfl_xor_sync(0xffffffffu, v, 1);
	return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// softmax is the running one of a lane's two queries (Milakov, Gimelshein 2018, arXiv
// 1805.02867), to base 2. Of the sums each of a row's four lanes has a part.
struct softmax {
	float top[2], sum[2];
};

// weigh turns the scores of a tile of keys from key0 on into probabilities, up to their
// common factor; kept is dropout's mask. It returns by what earlier ones are to be multiplied.
__device__ inline void weigh(part p[STEP / 16], softmax &of, float fade[2], const attention_sizes &s, u32 kept, int query0, int key0) {
	const float scale = s.scale * LOG2_E;
	const int beyond = key0 - (query0 + s.tk - s.tq);
	if (beyond + STEP - 1 > 0) // for the warp's first query
		UNROLL for (int n = 0; n < STEP / 16; n++) hide(p[n], beyond + 16 * n + lane_column() - lane_row(), -8, 1);
	const int before = first_seen(s, query0 + 15) - key0;
	if (s.window && before > 0) // for the warp's last query
		UNROLL for (int n = 0; n < STEP / 16; n++) hide(p[n], before - 15 - 16 * n - lane_column() + lane_row(), 8, -1);
	UNROLL for (int r = 0; r < 2; r++) {
		float most = LOWEST;
		UNROLL for (int n = 0; n < STEP / 16; n++) {
			float *const v = p[n].at[r];
			UNROLL for (int j = 0; j < 4; j++) {
				v[j] *= scale;
				most = fmaxf(most, v[j]);
			}
		}
		most = fmaxf(of.top[r], max_of_row(most));
		fade[r] = exp2f(of.top[r] - most);
		of.top[r] = most;
		of.sum[r] *= fade[r];
		if (most < NONE_SEEN) most = 0;
		UNROLL for (int n = 0; n < STEP / 16; n++) {
			float *const v = p[n].at[r];
			UNROLL for (int j = 0; j < 4; j++) {
				v[j] = exp2f(v[j] - most);
				of.sum[r] += v[j];
			}
			if (s.dropped)
				UNROLL for (int j = 0; j < 4; j++) v[j] *= kept >> (8 * n + 4 * r + j) & 1 ? s.mask.scale : 0;
		}
	}
}

// attend computes QUERIES queries, 16 in each warp. While the scores of a tile are computed
// its values are on their way, and then the keys of the next.
template <int D, bool quads> __device__ inline void attend(const attention_args &a, u32 *tile_k, u32 *tile_v) {
	const attention_sizes &s = a.s;
	const int tiles = (s.tq + QUERIES - 1) / QUERIES, places = gridDim.x / tiles; // of sequence and head
	const int place = (int)blockIdx.x % places, sequence = place / s.heads, head = place % s.heads, kv_head = head / (s.heads / s.kv_heads);
	const int query0 = (tiles - 1 - (int)blockIdx.x / places) * QUERIES; // those that see most begin first
	const int own = (int)threadIdx.x / 32 * 16;                           // the warp's first query, from query0

	const rows of_q = rows_of(a.q, a.q_stride, sequence, s.tq, query0 + own, head, s.width);
	left q[D / 16];
	hold<D, quads>(q, of_q, lane_row(), lane_row() + 8, s);
	part o[D / 16] = {};
	softmax of = {{LOWEST, LOWEST}, {0, 0}};

	const int last = query0 + QUERIES < s.tq ? query0 + QUERIES : s.tq; // sees keys before this plus tk − tq
	const int end = last + s.tk - s.tq, own_end = of_q.count > 0 ? query0 + own + 16 + s.tk - s.tq : 0;
	const int from = first_tile(s, query0, STEP), own_from = first_tile(s, query0 + own, STEP);
	fetched<D, STEP, 1, quads> next;
	next.fetch(rows_of(a.k, a.k_stride, sequence, s.tk, from, kv_head, s.width), {}, s.width);
	next.put_rows(tile_k, 0);
	__syncthreads();
	for (int key0 = from; key0 < end; key0 += STEP) {
		const bool sees = key0 >= own_from && key0 < own_end, more = key0 + STEP < end;
		u32 kept = 0;
		if (s.dropped && sees) kept = kept_keys<STEP>(s, place, query0 + own, key0);
		next.fetch(rows_of(a.v, a.v_stride, sequence, s.tk, key0, kv_head, s.width), {}, s.width);
		left p[STEP / 16] = {};
		if (sees) {
			part scores[STEP / 16];
			float fade[2];
			UNROLL for (int n = 0; n < STEP / 16; n++) scores[n] = dot<D, STEP>(q, tile_k, 16 * n);
			weigh(scores, of, fade, s, kept, query0 + own, key0);
			UNROLL for (int n = 0; n < STEP / 16; n++) p[n] = left_of(scores[n]);
			UNROLL for (int i = 0; i < D / 16; i++)
				UNROLL for (int j = 0; j < 4; j++) o[i].at[0][j] *= fade[0], o[i].at[1][j] *= fade[1];
		}
		next.put_columns(tile_v, 0);
		__syncthreads(); // the values are there, the keys have been read
		if (more) next.fetch(rows_of(a.k, a.k_stride, sequence, s.tk, key0 + STEP, kv_head, s.width), {}, s.width);
		if (sees)
			UNROLL for (int n = 0; n < STEP / 16; n++) combine<D, STEP>(o, p[n], tile_v, 16 * n);
		if (more) next.put_rows(tile_k, 0);
		__syncthreads();
	}
	UNROLL for (int r = 0; r < 2; r++) {
		const int row = lane_row() + 8 * r;
		const i64 query = query0 + own + row;
		const float sum = sum_of_row(of.sum[r]);
		if (query >= s.tq) continue;
		if (lane_column() == 0) a.lse[(i64)place * s.tq + query] = (of.top[r] + log2f(sum)) / LOG2_E;
		write_row<D, quads>(a.o + ((i64)sequence * s.tq + query) * a.o_stride + (i64)head * s.width, o, r, 1 / sum, s);
	}
}

#define ATTENTION(name, D, quads, blocks) \
	typedef attention_args name##_args; \
	TILED_KERNEL(name, blocks) { \
		__shared__ uint4 k[tile<D, STEP>::row_words / 4], v[tile<D, STEP>::column_words / 4]; \
		attend<D, quads>(a, &k[0].x, &v[0].x); \
	}

ATTENTION(attention_mma_64, 64, true, 2)
ATTENTION(attention_mma_128, 128, true, 1)
ATTENTION(attention_mma_any, 128, false, 1)
