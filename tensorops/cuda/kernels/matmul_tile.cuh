// How a block multiplies a tile in float32: see matmul.cu.
#ifndef TROUPE_MATMUL_TILE_CUH
#define TROUPE_MATMUL_TILE_CUH

#include "bf16.cuh"
#include "matmul.cuh"

// STEP of the depth is in shared memory at a time: the fewest quads of which each thread has
// one on either side. More, and those on their way would crowd sums out of the registers.
#define STEP(R) (64 / (R))

// bf16_rounded is v rounded to bfloat16, as a float.
__device__ inline float bf16_rounded(float v) { return __uint_as_float(bf16_bits(v) << 16); }

// operand is one side of a product in progress: rows × depth of A, or columns × depth of B.
// deep says that its elements follow each other along the depth, as in A or in a transposed
// B; else they do across. Of each step a thread has one quad.
template <int R, bool deep> struct operand {
	static const int wide = 16 * R;
	static const int row = wide + 4; // in shared memory; 4 more, against conflicts of banks
	static const int step = STEP(R);

	const float *from; // the thread's quad of the next step
	i64 ahead;         // from there to that of the step after
	int across, along; // how many there are from it on, across and along the depth
	bool aligned, bf16;
	quad next;

	// place says where this thread's quad lies in a tile.
	__device__ static void place(int &x, int &k) {
		x = deep ? threadIdx.x / (step / 4) : threadIdx.x % (wide / 4) * 4;
		k = deep ? threadIdx.x % (step / 4) * 4 : threadIdx.x / (wide / 4);
	}

	// begin goes to the tile from x0 on, of limit in all, and to the depth from first to last.
	__device__ void begin(const float *m, i64 stride, int x0, int limit, i64 first, i64 last) {
		int x, k;
		place(x, k);
		from = deep ? m + (x0 + x) * stride + first + k : m + (first + k) * stride + x0 + x;
		ahead = deep ? step : step * stride;
		across = limit - x0 - x;
		along = (int)(last - first) - k;
	}

	// fetch reads the next step into registers.
	__device__ void fetch() {
		next = quad{0, 0, 0, 0};
		if (across > 0 && along > 0) next = load_quad(from, deep ? along : across, aligned);
		from += ahead;
		along -= step;
	}

	// store puts what was fetched into shared memory, [step][row].
	__device__ void store(float *tile) const {
		int x, k;
		place(x, k);
		quad v = next;
		if (bf16) v = quad{bf16_rounded(v.x), bf16_rounded(v.y), bf16_rounded(v.z), bf16_rounded(v.w)};
		if (deep) {
			tile[(k + 0) * row + x] = v.x;
			tile[(k + 1) * row + x] = v.y;
			tile[(k + 2) * row + x] = v.z;
			tile[(k + 3) * row + x] = v.w;
		} else {
			aligned_at(tile + k * row + x) = v;
		}
	}
};

// registers copies a thread's R of a row of a tile: quads 64 apart, so that neighbouring
// threads read neighbouring quads.
template <int R> __device__ inline void registers(float v[R], const float *row, int thread) {
	UNROLL for (int i = 0; i < R; i += 4) {
		const quad q = aligned_at(row + i * 16 + thread * 4);
		v[i] = q.x, v[i + 1] = q.y, v[i + 2] = q.z, v[i + 3] = q.w;
	}
}

// multiply_step adds the products of one step.
template <int R> __device__ inline void multiply_step(float sum[R][R], const float *a, const float *b) {
	const int row = 16 * R + 4;
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	UNROLL for (int k = 0; k < STEP(R); k++) {
		float x[R], y[R];
		registers<R>(x, a + k * row, ty);
		registers<R>(y, b + k * row, tx);
		UNROLL for (int i = 0; i < R; i++)
			UNROLL for (int j = 0; j < R; j++) sum[i][j] += x[i] * y[j];
	}
}

// write_piece puts a thread's sums of a piece into C. The first piece starts from C, the bias or
// 0, a later one from what the one before left.
template <int R> __device__ inline void write_piece(const matmul_args &a, float sum[R][R], int row0, int col0, bool again) {
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	UNROLL for (int i = 0; i < R; i++) {
		const int row = row0 + i / 4 * 64 + ty * 4 + i % 4;
		if (row >= a.m) continue;
		UNROLL for (int j = 0; j < R; j += 4) {
			const int col = col0 + j * 16 + tx * 4;
			if (col >= a.n) continue;
			float *c = a.c + row * a.c_stride + col;
			quad start = {0, 0, 0, 0};
			if (again) start = load_quad(c, a.n - col, a.quads_c);
			else if (a.bias) start = load_quad(a.bias + col, a.n - col, false);
			store_quad(c, quad{start.x + sum[i][j], start.y + sum[i][j + 1], start.z + sum[i][j + 2], start.w + sum[i][j + 3]}, a.n - col, a.quads_c);
		}
	}
}

// multiply_tile computes the tile of C at row0 and col0 over the depth from first to last; without depth, nothing. again: it is added
// to what C holds. shared has room for two steps of either side.
template <int R, bool deep_a, bool deep_b>
__device__ inline void multiply_tile(const matmul_args &a, int row0, int col0, i64 first, i64 last, bool again, float *shared) {
	typedef operand<R, deep_a> side_a;
	typedef operand<R, deep_b> side_b;
	const int step = STEP(R), size = step * side_a::row;
	float *const tiles_a = shared, *const tiles_b = shared + 2 * size; // two of each

	side_a x;
	side_b y;
	x.aligned = a.quads_a, y.aligned = a.quads_b;
	x.bf16 = y.bf16 = a.bf16;
	x.begin(a.a, a.a_stride, row0, a.m, first, last);
	y.begin(a.b, a.b_stride, col0, a.n, first, last);
	for (int left = (int)(last - first); left > 0; left -= DEPTH, again = true) {
		const int depth = left < DEPTH ? left : DEPTH;
		float sum[R][R] = {};
		x.fetch();
		y.fetch();
		__syncthreads(); // the piece before has been read
		x.store(tiles_a);
		y.store(tiles_b);
		__syncthreads();
		int half = 0;
		for (int k = 0; k < depth; k += step, half ^= 1) {
			const bool more = k + step < depth;
			if (more) {
				x.fetch();
				y.fetch();
			}
			multiply_step<R>(sum, tiles_a + half * size, tiles_b + half * size);
			if (more) {
				x.store(tiles_a + (half ^ 1) * size);
				y.store(tiles_b + (half ^ 1) * size);
				__syncthreads();
			}
		}
		write_piece<R>(a, sum, row0, col0, again);
	}
}

#endif
