// LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) of rows, which may be sums that are
// made on the way.
//
// A team has a row: a warp, if that can keep the row in registers, and else a block, which keeps what it
// can. So a row is read once. Which of the two it is depends on the width alone, and with it the order of
// sums.
#include "eight.cuh"
#include "reduce.cuh"

#define NORM_KEPT 4       // eights that a thread keeps
#define WARPS_THREADS 128 // in a block of teams that are warps: launch_norm.go knows it as normWarpsThreads
#define WARPS_BLOCKS 7    // of these, to a multiprocessor
#define MOST_THREADS 512  // in a block that is a team: launch_norm.go knows it as normThreads

struct norm_args {
	float *y;
	const float *x, *gamma, *beta; // beta may be 0
	float *stats;                  // LayerNorm: mean and rstd of each row; RMSNorm: rstd
	// Where sum is not 0, the rows that are normalised are those of sum = x + skip, which the
	// kernel makes: the residual. It may be x or skip.
	float *sum;
	const float *skip;
	double eps;
	i64 rows, cols;
	u32 aligned, halves; // of y, x, sum and skip
	float offset;        // of gamma
	u32 pad;
};

typedef norm_args layer_norm_args, rms_norm_args, layer_norm_warps_args, rms_norm_warps_args;

// row_team is a thread's place in the team of a row, a warp or a block.
template <bool warp> struct row_team {
	i64 row;
	int lane, size;

	__device__ row_team()
		: row(warp ? (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32 : (i64)blockIdx.x), lane(warp ? threadIdx.x % 32 : threadIdx.x), size(warp ? 32 : blockDim.x) {}

	// column is the first of a thread's i-th eight.
	__device__ i64 column(i64 i) const { return 8 * (i * size + lane); }

	template <int N> __device__ void sum(double (&v)[N]) const {
		if (!warp) return block_sums(v);
		UNROLL for (int i = 0; i < N; i++) v[i] = warp_sum(v[i]);
	}

	// first_of is the first thread's v.
	__device__ float first_of(float v) const {
		if (warp) return __shfl_sync(ALL_LANES, v, 0);
		__shared__ float first;
		if (threadIdx.x == 0) first = v;
		__syncthreads();
		return first;
	}
};

// term reads an eight of the row that is normalised, or makes it. Where it is made, it is used as it is
// stored.
__device__ inline eight term(const norm_args &a, i64 at, i64 left) {
	eight v = load8(a.x, at, left, a.aligned, a.halves & 2);
	if (a.sum == 0) return v;
	const eight skip = load8(a.skip, at, left, a.aligned, a.halves & 8);
	EACH_OF_EIGHT(k) v.at[k] = __fadd_rn(v.at[k], skip.at[k]);
	v = as_stored(v, a.halves & 4);
	store8(a.sum, at, v, left, a.aligned, a.halves & 4);
	return v;
}

// again reads an eight of the row that was not kept.
__device__ inline eight again(const norm_args &a, i64 at, i64 left) {
	return a.sum == 0 ? load8(a.x, at, left, a.aligned, a.halves & 2) : load8(a.sum, at, left, a.aligned, a.halves & 4);
}

__device__ inline void normalise(const norm_args &a, i64 row, i64 j, eight v, float mean, float rstd) {
	const i64 left = a.cols - j;
	const eight gamma = load8(a.gamma, j, left, a.aligned, 0);
	EACH_OF_EIGHT(k) v.at[k] = __fmul_rn(__fmul_rn(__fsub_rn(v.at[k], mean), rstd), __fadd_rn(gamma.at[k], a.offset));
	if (a.beta != 0) {
		const eight beta = load8(a.beta, j, left, a.aligned, 0);
		EACH_OF_EIGHT(k) v.at[k] = __fadd_rn(v.at[k], beta.at[k]);
	}
	store8(a.y, row + j, v, left, a.aligned, a.halves & 1);
}

// add_terms adds an eight's terms to a thread's sums, in float64: the values without shift, and their squares.
__device__ inline void add_terms(double (&sums)[2], const eight &v, i64 left, float shift) {
	EACH_OF_EIGHT(k) {
		const double d = k < left ? (double)v.at[k] - shift : 0;
		sums[0] += d;
		sums[1] = __fma_rn(d, d, sums[1]);
	}
}

template <bool centred, bool warp> __device__ inline void norm_row(const norm_args &a) {
	const row_team<warp> team;
	if (team.row >= a.rows) return;
	const i64 row = team.row * a.cols;
	eight kept[NORM_KEPT];
	UNROLL for (int i = 0; i < NORM_KEPT; i++) {
		const i64 j = team.column(i);
		if (j < a.cols) kept[i] = term(a, row + j, a.cols - j);
	}
	// LayerNorm's sums are of what remains without the first element: they lose nothing where the row is
	// far from zero.
	const float shift = centred ? team.first_of(kept[0].at[0]) : 0;
	double sums[2] = {0, 0};
	UNROLL for (int i = 0; i < NORM_KEPT; i++) {
		const i64 j = team.column(i);
		if (j < a.cols) add_terms(sums, kept[i], a.cols - j, shift);
	}
	for (i64 i = NORM_KEPT; !warp && team.column(i) < a.cols; i++) {
		const i64 j = team.column(i);
		add_terms(sums, term(a, row + j, a.cols - j), a.cols - j, shift);
	}
	team.sum(sums);
	const double offset = centred ? sums[0] / a.cols : 0, variance = fmax(sums[1] / a.cols - offset * offset, 0.0);
	const float mean = centred ? (float)(shift + offset) : 0, rstd = (float)(1 / sqrt(variance + a.eps));
	if (team.lane == 0) {
		if (centred) a.stats[2 * team.row] = mean;
		a.stats[centred ? 2 * team.row + 1 : team.row] = rstd;
	}
	UNROLL for (int i = 0; i < NORM_KEPT; i++) {
		const i64 j = team.column(i);
		if (j < a.cols) normalise(a, row, j, kept[i], mean, rstd);
	}
	for (i64 i = NORM_KEPT; !warp && team.column(i) < a.cols; i++) {
		const i64 j = team.column(i);
		normalise(a, row, j, again(a, row + j, a.cols - j), mean, rstd);
	}
}

BOUNDED_KERNEL(layer_norm, MOST_THREADS, 1) { norm_row<true, false>(a); }

BOUNDED_KERNEL(rms_norm, MOST_THREADS, 1) { norm_row<false, false>(a); }

BOUNDED_KERNEL(layer_norm_warps, WARPS_THREADS, WARPS_BLOCKS) { norm_row<true, true>(a); }

BOUNDED_KERNEL(rms_norm_warps, WARPS_THREADS, WARPS_BLOCKS) { norm_row<false, true>(a); }
