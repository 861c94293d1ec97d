// What attention and its gradient have in common on the tensor cores. Here too tiles of
// queries meet tiles of keys, and a warp has 16 rows of either for itself: its scores, and
// what it sums up, stay in its registers (mma.cuh). The other side is in shared memory as
// bfloat16. Sums, and what softmax is made of, are float32.
//
// Heads narrower than D, 64 or 128, are filled up with zeros. With quads, four neighbouring
// channels are aligned and exist all four or none.
#ifndef TROUPE_ATTENTION_MMA_CUH
#define TROUPE_ATTENTION_MMA_CUH

#include "attention.cuh"
#include "mma_tile.cuh"

#define QUERIES 128 // of a block, 16 in each warp: launch_attention.go knows it
#define LOG2_E 1.44269504088896340736f

static_assert(QUERIES == 16 * WARPS, "each warp has 16 queries");

// channels reads four channels from c on of a head that has so many, from p on.
template <bool quads> __device__ inline quad channels(const float *p, int c, int width) {
	if (!quads) return load_quad(p, width - c, false);
	return c < width ? *(const quad *)p : quad{0, 0, 0, 0};
}

// four_kept draws dropout's mask for four probabilities from a key on, as four bits.
__device__ inline u32 four_kept(const attention_sizes &s, i64 place, int query, int key) {
	float factors[4];
	factors_at(factors, s, place, query, key);
	return (u32)(factors[0] > 0) | (u32)(factors[1] > 0) << 1 | (u32)(factors[2] > 0) << 2 | (u32)(factors[3] > 0) << 3;
}

// kept_keys draws it for a lane's parts of 16 queries from query0 on by N keys from key0 on:
// bit 8·n + 4·r + j is that of row r and column j of part n.
template <int N> __device__ inline u32 kept_keys(const attention_sizes &s, i64 place, int query0, int key0) {
	u32 bits = 0;
	ROLLED for (int i = 0; i < N / 8; i++)
		bits |= four_kept(s, place, query0 + lane_row() + i % 2 * 8, key0 + i / 2 * 16 + lane_column()) << (4 * i);
	return bits;
}

// fetched are tiles of N rows of one matrix or of two, on their way from memory: each thread
// has four channels of four rows at a time, in registers, while others are computed with.
template <int D, int N, int MATRICES, bool quads> struct fetched {
	static const int units = N / 4 * (D / 4), each = MATRICES * units / THREADS;
	static_assert(each * THREADS == MATRICES * units, "all threads have as much");

	quad next[each][4];

	// unit says which rows and channels a thread's i-th four times four are of, and whether
	// of the second matrix.
	__device__ static bool unit(int i, int &r0, int &c) {
		const int index = (int)threadIdx.x + i * THREADS;
		r0 = index % units / (D / 4) * 4, c = index % (D / 4) * 4;
		return MATRICES > 1 && index >= units;
	}

	// fetch reads them. Rows that do not exist count as 0. Where all exist, nothing is asked
	// of each: a branch for each load would take longer than the load.
	__device__ void fetch(const rows &first, const rows &second, int width) {
		const bool whole = quads && width == D && first.count >= N && (MATRICES == 1 || second.count >= N);
		UNROLL for (int i = 0; i < each; i++) {
			int r0, c;
			const bool other = unit(i, r0, c);
			const i64 stride = other ? second.stride : first.stride;
			const int count = other ? second.count : first.count;
			const float *const at = (other ? second.at : first.at) + r0 * stride + c;
			if (whole) {
				UNROLL for (int r = 0; r < 4; r++) next[i][r] = *(const quad *)(at + r * stride);
			} else {
				UNROLL for (int r = 0; r < 4; r++) {
					next[i][r] = quad{0, 0, 0, 0};
					if (r0 + r < count) next[i][r] = channels<quads>(at + r * stride, c, width);
				}
			}
		}
	}

	// put_rows and put_columns store them in the two forms; 0 is for a matrix that is not
	// wanted in it.
	__device__ void put_rows(u32 *first, u32 *second) const {
		UNROLL for (int i = 0; i < each; i++) {
			int r0, c;
			u32 *const to = unit(i, r0, c) ? second : first;
			if (to) tile<D, N>::put_rows(to, next[i], r0, c);
		}
	}

	__device__ void put_columns(u32 *first, u32 *second) const {
		UNROLL for (int i = 0; i < each; i++) {
			int r0, c;
			u32 *const to = unit(i, r0, c) ? second : first;
			if (to) tile<D, N>::put_columns(to, next[i], r0, c);
		}
	}
};

// hold makes 16 rows a lane's A, over all channels: its two rows are the given ones.
template <int D, bool quads> __device__ inline void hold(left x[D / 16], const rows &m, int row0, int row1, const attention_sizes &s) {
	UNROLL for (int i = 0; i < D / 16; i++) {
		const int c = 16 * i + lane_column();
		quad v = {0, 0, 0, 0}, w = {0, 0, 0, 0};
		if (row0 < m.count) v = channels<quads>(m.at + row0 * m.stride + c, c, s.width);
		if (row1 < m.count) w = channels<quads>(m.at + row1 * m.stride + c, c, s.width);
		x[i] = left_of(part{{{v.x, v.y, v.z, v.w}, {w.x, w.y, w.z, w.w}}});
	}
}

// dot computes the scalar products of 16 rows with the 16 of a tile from r0 on.
template <int D, int N> __device__ inline part dot(const left x[D / 16], const u32 *tile_rows, int r0) {
	part sum = {};
	UNROLL for (int i = 0; i < D / 16; i++) multiply_add(sum, x[i], tile<D, N>::of_rows(tile_rows, r0, 16 * i));
	return sum;
}

// combine adds the 16 rows of a tile from r0 on, each as often as p says.
template <int D, int N> __device__ inline void combine(part sum[D / 16], const left &p, const u32 *tile_columns, int r0) {
	UNROLL for (int i = 0; i < D / 16; i++) multiply_add(sum[i], p, tile<D, N>::of_columns(tile_columns, r0, 16 * i));
}

// hide gives the scores of keys that are not seen a value that no exponential leaves anything
// of. beyond is by how much the key of the part's first element is past the last that its
// query sees; it changes by so much from row to row and from column to column.
__device__ inline void hide(part &scores, int beyond, int by_row, int by_column) {
	UNROLL for (int r = 0; r < 2; r++)
		UNROLL for (int j = 0; j < 4; j++)
			if (beyond + r * by_row + j * by_column > 0) scores.at[r][j] = LOWEST;
}

// write_row writes a lane's part of one of the rows that it has, times a factor.
template <int D, bool quads> __device__ inline void write_row(float *row, const part x[D / 16], int which, float factor, const attention_sizes &s) {
	UNROLL for (int i = 0; i < D / 16; i++) {
		const int c = 16 * i + lane_column();
		const float *const v = x[i].at[which];
		if (c < s.width) store_quad(row + c, quad{v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor}, quads ? 4 : s.width - c, quads);
	}
}

#endif
