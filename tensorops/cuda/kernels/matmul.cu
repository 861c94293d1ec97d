// Matrix products in float32: C = op(A)·op(B), plus C before or a bias.
//
// A block computes a tile of C from tiles of A and B in shared memory, each thread R×R
// elements in registers: the scheme of Volkov and Demmel (Benchmarking GPUs to
// tune dense linear algebra, SC'08). While a step of the depth is multiplied, the next is
// on its way from memory.
//
// Sums: the depth is cut in pieces of DEPTH. Each is summed up from 0 in ascending order,
// and the pieces are added in order to what C starts from. So an element's bits depend on
// its row of A, its column of B and the depth, not on the tiles nor on whether the pieces
// were given to different blocks.
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

template <int R, bool deep_a, bool deep_b> __device__ inline void multiply(matmul_args a, float *shared) {
	typedef operand<R, deep_a> side_a;
	typedef operand<R, deep_b> side_b;
	const int wide = 16 * R, step = STEP(R), size = step * side_a::row;

	int row0, col0;
	place_of_tile(a, wide, row0, col0);
	float *const tiles_a = shared, *const tiles_b = shared + 2 * size; // two of each

	i64 first = a.first, last = a.last;
	bool again = a.accumulate;
	if (a.parts) {
		first += (i64)blockIdx.y * DEPTH;
		if (last > first + DEPTH) last = first + DEPTH;
		a.c += (i64)blockIdx.y * a.m * a.n;
	}
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

// The forms: n for an operand that is stored as it is multiplied, t for a transposed one;
// tiles of 128×128 for large products, of 64×64 for those that would be few of them.
#define PRODUCT(name, R, deep_a, deep_b) \
	typedef matmul_args name##_args; \
	TILED_KERNEL(name, R == 8 ? 1 : 2) { \
		__shared__ quad shared[STEP(R) * (16 * R + 4)]; \
		multiply<R, deep_a, deep_b>(a, &shared[0].x); \
	}

PRODUCT(matmul_nn_128, 8, true, false)
PRODUCT(matmul_nt_128, 8, true, true)
PRODUCT(matmul_tn_128, 8, false, false)
PRODUCT(matmul_tt_128, 8, false, true)
PRODUCT(matmul_nn_64, 4, true, false)
PRODUCT(matmul_nt_64, 4, true, true)
PRODUCT(matmul_tn_64, 4, false, false)
PRODUCT(matmul_tt_64, 4, false, true)

struct matmul_sum_args {
	float *c;
	const float *parts; // [pieces][M][N]
	const float *bias;  // or 0
	i64 c_stride;
	i64 elements; // M·N
	int n, pieces, accumulate, pad;
};

// matmul_sum adds pieces of a product that were computed apart, in ascending order.
KERNEL(matmul_sum) {
	for (i64 i = GRID_INDEX; i < a.elements; i += GRID_SIZE) {
		const i64 col = i % a.n;
		float *c = a.c + i / a.n * a.c_stride + col;
		float sum = 0;
		if (a.accumulate) sum = *c;
		else if (a.bias) sum = a.bias[col];
		for (int piece = 0; piece < a.pieces; piece++) sum += a.parts[piece * a.elements + i];
		*c = sum;
	}
}
