// How a block multiplies a tile on the tensor cores: see matmul_mma.cu.
#ifndef TROUPE_MATMUL_MMA_TILE_CUH
#define TROUPE_MATMUL_MMA_TILE_CUH

#include "matmul.cuh"
#include "mma_tile.cuh"

#define STEP 32 // of the depth, in shared memory at a time

// side is one side of a product in progress: rows × depth of A, or columns × depth of B, WIDE
// of them. deep says that its elements follow each other along the depth; else they do across.
template <int WIDE, bool deep> struct side {
	typedef tile<deep ? STEP : WIDE, deep ? WIDE : STEP> form;
	static const int words = deep ? form::row_words : form::column_words;
	static const int units = WIDE / 4 * (STEP / 4); // of four times four, one for each thread or for the first of them

	const float *at;
	i64 stride;
	int across, limit; // of this tile the first, and how many there are in all
	bool aligned;
	quad next[4];

	// place says which four across and which four of the depth a thread's are.
	__device__ static void place(int &x, int &k) {
		const int thread = again((int)threadIdx.x);
		x = deep ? thread / (STEP / 4) * 4 : thread % (WIDE / 4) * 4;
		k = deep ? thread % (STEP / 4) * 4 : thread / (WIDE / 4) * 4;
	}

	// fetch reads the step from k0 on, of a piece that ends at k1, into registers.
	__device__ void fetch(i64 k0, i64 k1) {
		if (units < THREADS && threadIdx.x >= units) return;
		int x, step;
		place(x, step);
		const bool whole = aligned && across + WIDE <= limit && k0 + STEP <= k1; // nothing is asked of each
		x += across;
		const i64 k = k0 + step;
		const float *const from = deep ? at + x * stride + k : at + k * stride + x;
		if (whole) {
			UNROLL for (int r = 0; r < 4; r++) next[r] = *(const quad *)(from + r * stride);
			return;
		}
		UNROLL for (int r = 0; r < 4; r++) {
			next[r] = quad{0, 0, 0, 0};
			if (deep && x + r < limit && k < k1) next[r] = load_quad(from + r * stride, k1 - k, aligned);
			if (!deep && k + r < k1 && x < limit) next[r] = load_quad(from + r * stride, limit - x, aligned);
		}
	}

	// store puts what was fetched into shared memory.
	__device__ void store(u32 *to) const {
		if (units < THREADS && threadIdx.x >= units) return;
		int x, k;
		place(x, k);
		if (deep) form::put_rows(to, next, x, k);
		else form::put_columns(to, next, k, x);
	}

	// of is the part of a tile for products, 16 across from x on and 16 of the depth from k on.
	__device__ static right of(const u32 *from, int x, int k) {
		return deep ? form::of_rows(from, x, k) : form::of_columns(from, k, x);
	}
};

// transposed is a B as the A that it is the transpose of.
__device__ inline left transposed(const right &b) { return left{{b.at[0], b.at[2], b.at[1], b.at[3]}}; }

// write_piece puts a lane's sums of a piece into C. The first piece starts from C, the bias or
// 0, a later one from what the one before left.
template <int ROWS, int COLUMNS> __device__ inline void write_piece(const matmul_args &a, const part sum[ROWS][COLUMNS], int row0, int col0, bool again) {
	UNROLL for (int i = 0; i < ROWS; i++) {
		UNROLL for (int r = 0; r < 2; r++) {
			const int row = row0 + 16 * i + lane_row() / 2 * 4 + lane_row() % 2 + 2 * r; // in the order of mma.cuh
			if (row >= a.m) continue;
			UNROLL for (int j = 0; j < COLUMNS; j++) {
				const int col = col0 + 16 * j + lane_column();
				if (col >= a.n) continue;
				float *const c = a.c + row * a.c_stride + col;
				const float *const v = sum[i][j].at[r];
				quad start = {0, 0, 0, 0};
				if (again) start = load_quad(c, a.n - col, a.quads_c);
				else if (a.bias) start = load_quad(a.bias + col, a.n - col, false);
				store_quad(c, quad{start.x + v[0], start.y + v[1], start.z + v[2], start.w + v[3]}, a.n - col, a.quads_c);
			}
		}
	}
}

// multiply_tile computes the tile of C at row0 and col0 over the depth from first to last; without depth, nothing. again: it is added to
// what C holds.
// shared_a and shared_b have room for two steps each.
template <int WIDE, bool deep_a, bool deep_b>
__device__ inline void multiply_tile(const matmul_args &a, int row0, int col0, i64 first, i64 last, bool again, u32 *shared_a, u32 *shared_b) {
	typedef side<WIDE, deep_a> side_a;
	typedef side<WIDE, deep_b> side_b;
	const int rows = WIDE / 2 / 16, columns = WIDE / 4 / 16; // of parts, in a warp
	const int warp = threadIdx.x / 32, warp_row = warp / 4 * rows * 16, warp_col = warp % 4 * columns * 16;

	side_a x = {a.a, a.a_stride, row0, a.m, a.quads_a != 0, {}};
	side_b y = {a.b, a.b_stride, col0, a.n, a.quads_b != 0, {}};
	for (; first < last; first += DEPTH, again = true) {
		const i64 end = first + DEPTH < last ? first + DEPTH : last;
		part sum[rows][columns] = {};
		x.fetch(first, end);
		y.fetch(first, end);
		__syncthreads(); // the piece before has been read
		x.store(shared_a);
		y.store(shared_b);
		__syncthreads();
		int half = 0;
		for (i64 k = first; k < end; k += STEP, half ^= 1) {
			const bool more = k + STEP < end;
			if (more) {
				x.fetch(k + STEP, end);
				y.fetch(k + STEP, end);
			}
			UNROLL for (int step = 0; step < STEP; step += 16) {
				right of_b[columns];
				UNROLL for (int j = 0; j < columns; j++) of_b[j] = side_b::of(shared_b + half * side_b::words, warp_col + 16 * j, step);
				UNROLL for (int i = 0; i < rows; i++) {
					const left of_a = transposed(side_a::of(shared_a + half * side_a::words, warp_row + 16 * i, step));
					UNROLL for (int j = 0; j < columns; j++) multiply_add(sum[i][j], of_a, of_b[j]);
				}
			}
			if (more) {
				x.store(shared_a + (half ^ 1) * side_a::words);
				y.store(shared_b + (half ^ 1) * side_b::words);
				__syncthreads();
			}
		}
		write_piece<rows, columns>(a, sum, row0 + warp_row, col0 + warp_col, again);
	}
}

#endif
