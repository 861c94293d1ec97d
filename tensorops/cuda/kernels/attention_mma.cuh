// What attention and its gradient have in common on the tensor cores. Tiles of queries meet
// tiles of keys, all bfloat16 in shared memory, where asynchronous copies bring them while
// others are computed with. A warp has some rows of one side for itself: their scores,
// and what it sums up, stay in its registers (mma.cuh). 16 queries leave room for the warps of more
// blocks; 32 keys halve what the gradient loads of the queries for each product. Sums, and what softmax is made of, are float32.
//
// Heads narrower than D, 64 or 128, are filled up with zeros.
#ifndef TROUPE_ATTENTION_MMA_CUH
#define TROUPE_ATTENTION_MMA_CUH

#include "attention.cuh"
#include "mma_load.cuh"
#include "power.cuh"

#define MMA_THREADS 128 // of a block
#define MMA_WARPS (MMA_THREADS / 32)

// MMA_KERNEL(name, blocks) is KERNEL(name) for blocks of which a multiprocessor holds so many: of
// them, one multiplies while another waits, or is at softmax.
//
// ROLLED is for loops whose body is long and would be too much code several times.
#ifdef TROUPE_EMULATED
#define MMA_KERNEL(name, blocks) KERNEL(name)
#define ROLLED
#else
#define MMA_KERNEL(name, blocks) extern "C" __global__ void __launch_bounds__(MMA_THREADS, blocks) name(const name##_args a)
#define ROLLED _Pragma("unroll 1")
#endif

// half_rows are the rows of a head's matrix from some row on.
struct half_rows {
	const bf16 *at; // a multiple of 16 bytes, as stride is
	i64 stride;
	int count; // of those that exist; others count as 0
};

// half_rows_of are the rows from the given one on of head's matrix in a sequence of length
// rows; step is from one head to the next.
__device__ inline half_rows half_rows_of(const bf16 *m, i64 stride, int sequence, int length, int row, int head, int step) {
	return half_rows{m + ((i64)sequence * length + row) * stride + (i64)head * step, stride, length - row};
}

// copy_rows begins copies of N rows to a tile. A thread has the same column of each of its rows.
template <int D, int N> __device__ inline void copy_rows(uint4 *tile, const half_rows &m, int width) {
	typedef half_tile<D> form;
	const int together = MMA_THREADS / form::pieces; // rows that all threads copy at once
	static_assert(together % 8 == 0 && N % together == 0, "a thread's rows are alike, and all threads copy as much");
	const int place = (int)threadIdx.x / form::pieces, column = (int)threadIdx.x % form::pieces;
	const int row = element_at(place), left = width - 8 * column, stride = (int)m.stride; // a tile has fewer than 2³¹ elements
	const int bytes = left <= 0 ? 0 : left < 8 ? 2 * left : 16;
	const bf16 *const from = m.at + row * stride + 8 * column;
	uint4 *const to = tile + form::piece(place, column);
	UNROLL for (int i = 0; i < N / together; i++) {
		const int further = element_at(i * together);
		begin_copy<16>(to + i * together * form::pieces, from + further * stride, row + further < m.count ? bytes : 0);
	}
}

// lane_row is the first of the two rows that a lane has of 16; the other is 2 further on.
// lane_column is the first of its four columns.
__device__ inline int lane_row() { return threadIdx.x % 32 / 8 * 4 + threadIdx.x / 4 % 2; }
__device__ inline int lane_column() { return threadIdx.x % 4 * 4; }

// four_kept draws dropout's mask for four probabilities from a key on, as four bits.
__device__ inline u32 four_kept(const attention_sizes &s, i64 place, int query, int key) {
	float factors[4];
	factors_at(factors, s, place, query, key);
	return (u32)(factors[0] > 0) | (u32)(factors[1] > 0) << 1 | (u32)(factors[2] > 0) << 2 | (u32)(factors[3] > 0) << 3;
}

// hide gives the scores of keys that are not seen a value that no exponential leaves anything
// of. beyond is by how much the key of the part's first element is past the last that its
// query sees; it changes by so much from row to row and from column to column.
__device__ inline void hide(part &scores, int beyond, int by_row, int by_column) {
	UNROLL for (int r = 0; r < 2; r++)
		UNROLL for (int j = 0; j < 4; j++)
			if (beyond + r * by_row + j * by_column > 0) scores.at[r][j] = LOWEST;
}

// tanh_of is the hyperbolic tangent, to the last bits of 1: to less of what is small.
__device__ inline float tanh_of(float x) { return 1 - 2 * reciprocal_of(exp2_of(x * (2 * LOG2_E)) + 1); }

// cap_all turns products into scores under the soft cap, to base 2.
__device__ inline void cap_all(part &products, const attention_sizes &s) {
	const float cap = s.cap * LOG2_E;
	UNROLL for (int r = 0; r < 2; r++)
		UNROLL for (int j = 0; j < 4; j++) products.at[r][j] = cap * tanh_of(products.at[r][j] * s.inside);
}

// write_row writes N parts of a row, times a factor, from channel c0 on; from row on the matrix
// is head's. Of the channels a lane has two and two, and its neighbour those between: they
// exchange some, so that each has four neighbours. All lanes come here, also those whose row
// does not exist.
template <int N> __device__ inline void write_row(float *matrix, u32 half, i64 row, bool exists, const part x[N], int which, float factor, int c0, const attention_sizes &s) {
	const int t = threadIdx.x % 4;
	const bool odd = t % 2;
	UNROLL for (int i = 0; i < N; i++) {
		const float *const v = x[i].at[which];
		const float a = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[2], 1), b = __shfl_xor_sync(0xffffffffu, odd ? v[1] : v[3], 1);
		quad four = odd ? quad{a, b, v[2], v[3]} : quad{v[0], v[1], a, b};
		four = quad{four.x * factor, four.y * factor, four.z * factor, four.w * factor};
		const int c = c0 + 16 * i + (odd ? 6 : 0) + 2 * t;
		if (!exists || c >= s.width) continue;
		if (half) store_quad((bf16 *)matrix + row + c, four, s.width - c, s.quads);
		else store_quad(matrix + row + c, four, s.width - c, s.quads);
	}
}

#endif
