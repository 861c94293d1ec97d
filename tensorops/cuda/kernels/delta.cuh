// The gated delta rule of linear attention: what its kernels have in common. tensorops/list_delta.go has the
// formulas.
#ifndef TROUPE_DELTA_CUH
#define TROUPE_DELTA_CUH

#include "reduce.cuh"
#include "tile.cuh"

#define DELTA_COLUMNS 32 // of a state that a block has: launch_delta.go knows it as deltaColumns
#define DELTA_LANES 8    // that share a column
#define DELTA_STEP 16    // positions that are read at a time
#define DELTA_CHUNK 64   // positions between the states that are kept: launch_delta.go knows it as deltaChunk
#define DELTA_WIDTH 256  // the widest head of keys

struct delta_sizes {
	i64 q_stride, k_stride, v_stride;
	i64 positions;
	double eps;
	float scale;
	int sequences, key_heads, value_heads, key_width, value_width;
};

struct delta_args {
	float *o; // or 0
	const float *q, *k, *v, *gates;
	float *state; // or 0: the state before the first position, and then that after the last
	// For the gradient, or 0: the state before each chunk, [sequences][value heads][chunks][key width][value width],
	// and n of each position, as v.
	float *states, *rest;
	delta_sizes sizes;
};

struct delta_grad_args {
	float *dq, *dk, *dv, *dgates;
	const float *dout, *q, *k, *v, *gates;
	// What the passes leave each other: states and rest as above, the gradient of the state after each chunk, and the
	// gradient of n without β.
	float *states, *rest, *dstates, *drest;
	i64 dq_stride, dk_stride, dv_stride;
	delta_sizes sizes;
};

// delta_head is a block's head of values, and the head of keys that it reads.
struct delta_head {
	i64 sequence;
	int of, keys;

	__device__ delta_head(const delta_sizes &s, i64 index)
		: sequence(index / s.value_heads), of((int)(index % s.value_heads)), keys(of / (s.value_heads / s.key_heads)) {}

	// row is a position's row in a matrix.
	__device__ i64 row(const delta_sizes &s, i64 t) const { return sequence * s.positions + t; }

	// g is a position's gate; β is value_heads further.
	__device__ i64 gate(const delta_sizes &s, i64 t) const { return row(s, t) * 2 * s.value_heads + of; }

	// state is where the state before or after a chunk lies.
	__device__ i64 state(const delta_sizes &s, i64 chunk, i64 chunks) const {
		return ((sequence * s.value_heads + of) * chunks + chunk) * s.key_width * s.value_width;
	}
};

// delta_rows are the positions that a block of 256 threads has read: a warp takes two rows of each.
struct delta_rows {
	float q[DELTA_STEP][DELTA_WIDTH], k[DELTA_STEP][DELTA_WIDTH]; // q̂ and k̂
	float both[DELTA_STEP];                                      // q̂·k̂
	float decay[DELTA_STEP], beta[DELTA_STEP];                   // e^g and β
	float v[DELTA_STEP][DELTA_COLUMNS];                          // of the block's columns: v, or do, or what goes out

	// read fills them with n positions from t on, but for v.
	__device__ void read(const delta_sizes &s, const delta_head &h, const float *q_of, const float *k_of, const float *gates, i64 t, int n) {
		const int lane = threadIdx.x % 32;
		for (int r = threadIdx.x / 32; r < n; r += THREADS / 32) {
			const float *from_q = q_of + h.row(s, t + r) * s.q_stride + (i64)h.keys * s.key_width;
			const float *from_k = k_of + h.row(s, t + r) * s.k_stride + (i64)h.keys * s.key_width;
			float qq = 0, kk = 0, qk = 0;
			for (int i = lane; i < s.key_width; i += 32) {
				const float x = from_q[i], y = from_k[i];
				qq = __fmaf_rn(x, x, qq), kk = __fmaf_rn(y, y, kk), qk = __fmaf_rn(x, y, qk);
			}
			qq = warp_sum(qq), kk = warp_sum(kk), qk = warp_sum(qk);
			const float rq = (float)(s.scale / sqrt(qq + s.eps)), rk = (float)(1 / sqrt(kk + s.eps));
			for (int i = lane; i < s.key_width; i += 32) {
				q[r][i] = from_q[i] * rq;
				k[r][i] = from_k[i] * rk;
			}
			if (lane == 0) {
				both[r] = qk * rq * rk;
				decay[r] = expf(gates[h.gate(s, t + r)]);
				beta[r] = gates[h.gate(s, t + r) + s.value_heads];
			}
		}
	}

	// columns calls f for each of the block's elements of n positions, in the order of memory.
	template <class F> __device__ void columns(const delta_sizes &s, int n, F f) {
		for (int i = threadIdx.x; i < n * DELTA_COLUMNS; i += THREADS) {
			const int c = blockIdx.x * DELTA_COLUMNS + i % DELTA_COLUMNS;
			if (c < s.value_width) f(i / DELTA_COLUMNS, i % DELTA_COLUMNS, c);
		}
	}
};

// delta_column is a thread's part of a column of the state: rows lane, lane + 8 and so on. It is in registers.
template <int N> struct delta_column {
	float at[N];
	int lane, c, column; // column counts those of the block

	__device__ delta_column()
		: lane(threadIdx.x % DELTA_LANES), c(blockIdx.x * DELTA_COLUMNS + threadIdx.x / DELTA_LANES), column(threadIdx.x / DELTA_LANES) {
		UNROLL for (int r = 0; r < N; r++) at[r] = 0;
	}

	// each calls f for the rows that exist.
	template <class F> __device__ void each(const delta_sizes &s, F f) {
		UNROLL for (int r = 0; r < N; r++) {
			const int i = lane + r * DELTA_LANES;
			if (i < s.key_width && c < s.value_width) f(at[r], i);
		}
	}

	__device__ void load(const delta_sizes &s, const float *from) {
		from += (i64)lane * s.value_width + c;
		each(s, [&](float &v, int) {
			v = *from;
			from += (i64)DELTA_LANES * s.value_width;
		});
	}

	__device__ void store(const delta_sizes &s, float *to) {
		to += (i64)lane * s.value_width + c;
		each(s, [&](float &v, int) {
			*to = v;
			to += (i64)DELTA_LANES * s.value_width;
		});
	}
};

// column_sum adds up what the lanes of a column have.
__device__ inline float column_sum(float v) {
	for (int apart = DELTA_LANES / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(ALL_LANES, v, apart);
	return v;
}

#endif
