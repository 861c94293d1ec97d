// Tiles of matrices in shared memory, as the products of mma.cuh read them.
#ifndef TROUPE_MMA_TILE_CUH
#define TROUPE_MMA_TILE_CUH

#include "mma.cuh"

#define WARPS (THREADS / 32)

// ROLLED is for loops whose body is long and would be too much code several times.
#ifdef TROUPE_EMULATED
#define ROLLED
#else
#define ROLLED _Pragma("unroll 1")
#endif

// lane_row and lane_column are the first row and the first column of a lane's part.
__device__ inline int lane_row() { return threadIdx.x % 32 / 4; }
__device__ inline int lane_column() { return threadIdx.x % 4 * 4; }

// tile is N rows of D channels in shared memory, as words of two bfloat16, in one of two
// forms. From a row of either to the next it is a quarter of the banks more than all of
// them: lanes that read at the same time read from different ones.
template <int D, int N> struct tile {
	static const int row = D / 2 + 8, column = 2 * D + 8;
	static const int row_words = N * row, column_words = N / 4 * column;

	// put_rows stores four channels from c on of four rows from r0 on, for products over the
	// channels: the rows in the order of mma.cuh, in each the channels.
	__device__ static void put_rows(u32 *to, const quad v[4], int r0, int c) {
		UNROLL for (int r = 0; r < 4; r++)
			*(uint2 *)(to + place_of(r0 + r) * row + c / 2) = make_uint2(bf16_pair(v[r].x, v[r].y), bf16_pair(v[r].z, v[r].w));
	}

	// put_columns stores them for products over the rows: for every four rows the channels in
	// the order of mma.cuh, with the four of each side by side.
	__device__ static void put_columns(u32 *to, const quad v[4], int r0, int c) {
		u32 *const at = to + r0 / 4 * column;
		*(uint4 *)(at + 2 * place_of(c)) = make_uint4(bf16_pair(v[0].x, v[1].x), bf16_pair(v[2].x, v[3].x), bf16_pair(v[0].y, v[1].y), bf16_pair(v[2].y, v[3].y));
		*(uint4 *)(at + 2 * place_of(c + 2)) = make_uint4(bf16_pair(v[0].z, v[1].z), bf16_pair(v[2].z, v[3].z), bf16_pair(v[0].w, v[1].w), bf16_pair(v[2].w, v[3].w));
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

#endif
