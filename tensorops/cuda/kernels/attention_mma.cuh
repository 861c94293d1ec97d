// What attention and its gradient have in common on the tensor cores. Here too tiles of
// queries meet tiles of keys, and a warp has 16 rows of either for itself: its scores, and
// what it sums up, stay in its registers (mma.cuh). The other side is in shared memory as
// bfloat16. Sums, and what softmax is made of, are float32.
//
// Heads of other widths than D, 64 or 128, are filled up with zeros.
#ifndef TROUPE_ATTENTION_MMA_CUH
#define TROUPE_ATTENTION_MMA_CUH

#include "attention.cuh"
#include "mma.cuh"

#define WARPS (THREADS / 32)
#define LOG2_E 1.44269504088896340736f

// MMA_KERNEL(name, blocks) is KERNEL(name) with so many registers that a multiprocessor
// holds that many blocks.
#ifdef TROUPE_EMULATED
#define MMA_KERNEL(name, blocks) KERNEL(name)
#else
#define MMA_KERNEL(name, blocks) extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(const name##_args a)
#endif

// lane_row and lane_column are the first row and the first column of a lane's part.
__device__ inline int lane_row() { return threadIdx.x % 32 / 4; }
__device__ inline int lane_column() { return threadIdx.x % 4 * 4; }

// tile is N rows of D channels, of which each thread has four times four at a time: on their
// way from memory, in registers, while others are computed with.
template <int D, int N> struct tile {
	static const int units = N / 4 * (D / 4), each = (units + THREADS - 1) / THREADS;

	// Words of shared memory, for the forms below. From a row of either to the next it is a
	// quarter of the banks more than all: lanes that read at once read from different banks.
	static const int row = D / 2 + 8, column = 2 * D + 8;
	static const int row_words = N * row, column_words = N / 4 * column;

	quad next[each][4];

	// fetch reads them. Rows that do not exist count as 0.
	__device__ void fetch(const rows &m, const attention_sizes &s) {
		UNROLL for (int i = 0; i < each; i++) {
			const int unit = (int)threadIdx.x + i * THREADS, r0 = unit / (D / 4) * 4, c = unit % (D / 4) * 4;
			UNROLL for (int r = 0; r < 4; r++) {
				next[i][r] = quad{0, 0, 0, 0};
				if (unit < units && r0 + r < m.count) next[i][r] = load_quad(m.at + (r0 + r) * m.stride + c, s.width - c, s.quads);
			}
		}
	}

	// put_rows stores them for products over the channels: the rows in the order of mma.cuh,
	// in each the channels.
	__device__ void put_rows(u32 *to) const {
		UNROLL for (int i = 0; i < each; i++) {
			const int unit = (int)threadIdx.x + i * THREADS, r0 = unit / (D / 4) * 4, c = unit % (D / 4) * 4;
			if (unit >= units) break;
			UNROLL for (int r = 0; r < 4; r++) {
				const quad v = next[i][r];
				*(uint2 *)(to + place_of(r0 + r) * row + c / 2) = make_uint2(bf16_pair(v.x, v.y), bf16_pair(v.z, v.w));
			}
		}
	}

	// put_columns stores them for products over the rows: for every four rows the channels in
	// the order of mma.cuh, with the four of each side by side.
	__device__ void put_columns(u32 *to) const {
		UNROLL for (int i = 0; i < each; i++) {
			const int unit = (int)threadIdx.x + i * THREADS, r0 = unit / (D / 4) * 4, c = unit % (D / 4) * 4;
			if (unit >= units) break;
			const quad *const v = next[i];
			u32 *const at = to + r0 / 4 * column;
			*(uint4 *)(at + 2 * place_of(c)) = make_uint4(bf16_pair(v[0].x, v[1].x), bf16_pair(v[2].x, v[3].x), bf16_pair(v[0].y, v[1].y), bf16_pair(v[2].y, v[3].y));
			*(uint4 *)(at + 2 * place_of(c + 2)) = make_uint4(bf16_pair(v[0].z, v[1].z), bf16_pair(v[2].z, v[3].z), bf16_pair(v[0].w, v[1].w), bf16_pair(v[2].w, v[3].w));
		}
	}

	// of_rows is the B of 16 rows from r0 on and 16 channels from c0 on, which are the depth.
	__device__ static right of_rows(const u32 *from, int r0, int c0) {
		const u32 *const at = from + (r0 + lane_row()) * row + (c0 + lane_column()) / 2;
		const uint2 lower = *(const uint2 *)at, upper = *(const uint2 *)(at + 8 * row);
		return right{{lower.x, lower.y, upper.x, upper.y}};
	}

	// of_columns is the B of 16 rows from r0 on, which are the depth, and 16 channels from c0 on.
	__device__ static right of_columns(const u32 *from, int r0, int c0) {
		const u32 *const at = from + (r0 + lane_column()) / 4 * column + 2 * (c0 + lane_row());
		const uint2 lower = *(const uint2 *)at, upper = *(const uint2 *)(at + 16);
		return right{{lower.x, lower.y, upper.x, upper.y}};
	}
};

// hold makes 16 rows a lane's A, over all channels: its two rows are the given ones.
template <int D> __device__ inline void hold(left x[D / 16], const rows &m, int row0, int row1, const attention_sizes &s) {
	UNROLL for (int i = 0; i < D / 16; i++) {
		const int c = 16 * i + lane_column();
		quad v = {0, 0, 0, 0}, w = {0, 0, 0, 0};
		if (row0 < m.count) v = load_quad(m.at + row0 * m.stride + c, s.width - c, s.quads);
		if (row1 < m.count) w = load_quad(m.at + row1 * m.stride + c, s.width - c, s.quads);
		x[i] = left_of(part{{{v.x, v.y, v.z, v.w}, {w.x, w.y, w.z, w.w}}});
	}
}

// dot computes the scalar products of 16 rows with those of a tile in the form of put_rows.
template <int D, int N> __device__ inline void dot(part sum[N / 16], const left x[D / 16], const u32 *tile_rows) {
	UNROLL for (int n = 0; n < N / 16; n++) {
		sum[n] = part{};
		UNROLL for (int i = 0; i < D / 16; i++) multiply_add(sum[n], x[i], tile<D, N>::of_rows(tile_rows, 16 * n, 16 * i));
	}
}

// combine adds the rows of a tile in the form of put_columns, each as often as p says.
template <int D, int N> __device__ inline void combine(part sum[D / 16], const left p[N / 16], const u32 *tile_columns) {
	UNROLL for (int n = 0; n < N / 16; n++)
		UNROLL for (int i = 0; i < D / 16; i++) multiply_add(sum[i], p[n], tile<D, N>::of_columns(tile_columns, 16 * n, 16 * i));
}

// write_row writes a lane's part of one of the rows that it has, times a factor.
template <int D> __device__ inline void write_row(float *row, const part x[D / 16], int which, float factor, const attention_sizes &s) {
	UNROLL for (int i = 0; i < D / 16; i++) {
		const int c = 16 * i + lane_column();
		const float *const v = x[i].at[which];
		store_quad(row + c, quad{v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor}, s.width - c, s.quads);
	}
}

#endif
