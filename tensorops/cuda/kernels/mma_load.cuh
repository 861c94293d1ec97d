// What brings bfloat16 from memory to the operands of mma.cuh: copies to shared memory that
// go on beside the computing (cp.async), and loads of matrices by the lanes of a warp
// (ldmatrix). Both are Ampere's and later ones'.
#ifndef TROUPE_MMA_LOAD_CUH
#define TROUPE_MMA_LOAD_CUH

#include "mma.cuh"

#ifdef TROUPE_EMULATED
#define DYNAMIC_SHARED(name) uint4 *const name = (uint4 *)troupe_dynamic()
#else
// DYNAMIC_SHARED(name) is the shared memory of which the launch says how much there is.
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]

__device__ inline u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
#endif

// begin_copy begins a copy of BYTES, 4 or 16, to shared memory. The first there of them are
// read, the others are 0. What is at to is nobody's until the copy has been waited for.
template <int BYTES> __device__ inline void begin_copy(void *to, const void *from, int there) {
#ifdef TROUPE_EMULATED
	troupe_copy(to, from, BYTES, (unsigned)there);
#elif __CUDA_ARCH__ >= 800
	if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there) : "memory");
	else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there) : "memory");
#else
	__trap(); // see mma
#endif
}

// wait_for_copies waits for all copies that the thread has begun. Those of others are there
// behind a barrier after it.
__device__ inline void wait_for_copies() {
#ifdef TROUPE_EMULATED
	troupe_copy_commit();
	troupe_copy_wait(0);
#elif __CUDA_ARCH__ >= 800
	asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
#endif
}

// load_matrices loads four matrices of 8×8: lane 8·i + r gives the address of row r of matrix
// i, 16 bytes. Lane 4·g + t gets of each the elements 2t and 2t+1 of row g, or, transposed, of
// column g.
template <bool transposed> __device__ inline void load_matrices(u32 (&to)[4], const void *row) {
#ifdef TROUPE_EMULATED
	troupe::ldmatrix(to, row, transposed);
#elif __CUDA_ARCH__ >= 800
	if (transposed)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
#else
	__trap();
#endif
}

// element_at is the element in a place of mma.cuh's order: place_of's inverse.
__device__ inline int element_at(int place) {
	return (place & ~15) | (place & 8) >> 2 | (place & 6) << 1 | (place & 1);
}

// half_tile is rows of D bfloat16 in shared memory, in the order of mma.cuh. Of a row, pieces
// of 16 bytes are exchanged by a rule that differs between any eight rows that follow each
// other: so a matrix of load_matrices has each of its rows in other banks, and so have the
// pieces of a row.
//
// Four loads give operands of 16×16 from row r0 and column c0 on, multiples of 16.
template <int D> struct half_tile {
	static constexpr int pieces = D / 8; // of a row

	// piece is where one lies, counted in pieces.
	__device__ static int piece(int row, int column) {
		return row * pieces + (column ^ (pieces < 8 ? row / 2 % 4 : row % 8));
	}

	// piece_at is piece of further rows and columns, multiples of 16 elements: one operation from what all
	// loads of a lane share, rather than an address that is kept for each.
	__device__ static int piece_at(int r0, int c0, int row, int column) {
		return r0 * pieces + (piece(row, column) ^ c0 / 8);
	}

	// right_rows has the rows for its columns, the columns for the depth.
	__device__ static right right_rows(const uint4 *tile, int r0, int c0) {
		const int lane = threadIdx.x % 32;
		right b;
		load_matrices<false>(b.at, tile + piece_at(r0, c0, lane / 16 * 8 + lane % 8, lane / 8 % 2));
		return b;
	}

	// right_columns has the columns for its columns, the rows for the depth.
	__device__ static right right_columns(const uint4 *tile, int r0, int c0) {
		const int lane = threadIdx.x % 32;
		right b;
		load_matrices<true>(b.at, tile + piece_at(r0, c0, lane % 16, lane / 16));
		return b;
	}

	// left_rows has the rows for its rows, the columns for the depth.
	__device__ static left left_rows(const uint4 *tile, int r0, int c0) {
		const int lane = threadIdx.x % 32;
		left a;
		load_matrices<false>(a.at, tile + piece_at(r0, c0, lane % 16, lane / 16));
		return a;
	}

	// left_columns has the columns for its rows, the rows for the depth.
	__device__ static left left_columns(const uint4 *tile, int r0, int c0) {
		const int lane = threadIdx.x % 32;
		left a;
		load_matrices<true>(a.at, tile + piece_at(r0, c0, lane / 16 * 8 + lane % 8, lane / 8 % 2));
		return a;
	}

	// put_left stores one as left_rows loads it.
	__device__ static void put_left(uint4 *tile, const left &a, int r0, int c0) {
		const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
		UNROLL for (int i = 0; i < 4; i++)
			((u32 *)(tile + piece(r0 + g + i % 2 * 8, c0 / 8 + i / 2)))[t] = a.at[i];
	}
};

#endif
