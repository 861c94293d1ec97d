// Rows between tokens and experts: copies, sums and products of rows. A warp has a row at a time, and no sum depends on
// anything but the width of a row. tensorops/list_expert.go has the formulas.
#include "expert.cuh"

struct dispatch_args {
	float *rows;
	const float *x;
	const int *places;
	route_fault fault;
	i64 tokens, k, cols, count; // count: of rows
	u32 aligned, halves; // of rows and x
};

template <bool mixed> __device__ inline void scatter(const dispatch_args &a) {
	EACH_ROW(n, a.tokens) {
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i;
			const four v = load4<mixed>(a.x, n * a.cols + i, left, a.aligned, a.halves & 2);
			for (i64 j = 0; j < a.k; j++) {
				const i64 row = one_of(a.places, n * a.k + j, a.count, a.fault);
				if (row >= 0) store4<mixed>(a.rows, row * a.cols + i, v, left, a.aligned, a.halves & 1);
			}
		}
	}
}

FORMS(dispatch, scatter)

struct combine_args {
	float *y;
	const float *rows, *weights; // weights may be 0
	const int *places;
	route_fault fault;
	i64 tokens, k, cols, count;
	u32 aligned, halves; // of y and rows
};

// gather adds the rows of a token in ascending order.
template <bool mixed> __device__ inline void gather(const combine_args &a) {
	EACH_ROW(n, a.tokens) {
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i;
			four sum = {};
			for (i64 j = 0; j < a.k; j++) {
				const i64 pair = n * a.k + j, row = one_of(a.places, pair, a.count, a.fault);
				if (row < 0) continue;
				const float weight = a.weights != 0 ? a.weights[pair] : 1;
				const four v = load4<mixed>(a.rows, row * a.cols + i, left, a.aligned, a.halves & 2);
				for (int c = 0; c < 4; c++) sum.at[c] = j == 0 ? __fmul_rn(weight, v.at[c]) : __fmaf_rn(weight, v.at[c], sum.at[c]);
			}
			store4<mixed>(a.y, n * a.cols + i, sum, left, a.aligned, a.halves & 1);
		}
	}
}

FORMS(combine, gather)

struct weigh_rows_args {
	float *rows, *drows, *dweights;
	const float *weights;
	const int *places; // or 0: a pair is the row of its number, and *used of them count
	const int *used;
	route_fault fault;
	i64 pairs, cols, count;
	u32 aligned, halves; // of rows and drows
};

template <bool mixed> __device__ inline void weigh(const weigh_rows_args &a) {
	i64 pairs = a.pairs;
	if (a.places == 0) {
		pairs = *a.used;
		if (pairs < 0 || pairs > a.count) {
			bad_route(a.fault, pairs);
			return;
		}
	}
	EACH_ROW(pair, pairs) {
		const i64 row = a.places != 0 ? one_of(a.places, pair, a.count, a.fault) : pair;
		if (row < 0) continue;
		const float weight = a.weights[pair];
		float product = 0;
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i, at = row * a.cols + i;
			four r = load4<mixed>(a.rows, at, left, a.aligned, a.halves & 1), d = load4<mixed>(a.drows, at, left, a.aligned, a.halves & 2);
			for (int c = 0; c < 4; c++) {
				product = __fmaf_rn(r.at[c], d.at[c], product);
				r.at[c] *= weight, d.at[c] *= weight;
			}
			store4<mixed>(a.rows, at, r, left, a.aligned, a.halves & 1);
			store4<mixed>(a.drows, at, d, left, a.aligned, a.halves & 2);
		}
		product = warp_sum(product);
		if (threadIdx.x % 32 == 0) a.dweights[pair] = product;
	}
}

FORMS(weigh_rows, weigh)

struct weigh_bias_args {
	float *dweights;
	const float *dy, *bias;
	const int *experts;
	route_fault fault;
	i64 pairs, k, cols, count; // count: of experts
	u32 aligned, halves; // of dy
};

template <bool mixed> __device__ inline void weigh_by_bias(const weigh_bias_args &a) {
	EACH_ROW(pair, a.pairs) {
		const i64 expert = one_of(a.experts, pair, a.count, a.fault);
		if (expert < 0) continue;
		float product = 0;
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i;
			const four d = load4<mixed>(a.dy, pair / a.k * a.cols + i, left, a.aligned, a.halves & 1);
			const four b = load4(a.bias + expert * a.cols + i, left, a.aligned);
			for (int c = 0; c < 4; c++) product = __fmaf_rn(d.at[c], b.at[c], product);
		}
		product = warp_sum(product);
		if (threadIdx.x % 32 == 0) a.dweights[pair] += product;
	}
}

FORMS(weigh_bias, weigh_by_bias)

struct row_gate_args {
	float *y;
	const float *x, *gate;
	i64 rows, cols;
	u32 aligned, halves; // of y and x
};

template <bool mixed> __device__ inline void gate_rows(const row_gate_args &a) {
	EACH_ROW(n, a.rows) {
		const float factor = (float)sigmoid(a.gate[n]);
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i, at = n * a.cols + i;
			four v = load4<mixed>(a.x, at, left, a.aligned, a.halves & 2);
			for (int c = 0; c < 4; c++) v.at[c] *= factor;
			store4<mixed>(a.y, at, v, left, a.aligned, a.halves & 1);
		}
	}
}

FORMS(row_gate, gate_rows)

struct row_gate_grad_args {
	float *dx, *dgate;
	const float *dy, *x, *gate;
	i64 rows, cols;
	u32 aligned, halves; // of dx, dy and x
};

// dx may be dy: a lane reads an element before it writes it.
template <bool mixed> __device__ inline void gate_rows_grad(const row_gate_grad_args &a) {
	EACH_ROW(n, a.rows) {
		const double p = sigmoid(a.gate[n]);
		const float factor = (float)p;
		float product = 0;
		EACH_FOUR_OF_LANES(i, a.cols) {
			const i64 left = a.cols - i, at = n * a.cols + i;
			four d = load4<mixed>(a.dy, at, left, a.aligned, a.halves & 2);
			const four x = load4<mixed>(a.x, at, left, a.aligned, a.halves & 4);
			for (int c = 0; c < 4; c++) {
				product = __fmaf_rn(d.at[c], x.at[c], product);
				d.at[c] *= factor;
			}
			store4<mixed>(a.dx, at, d, left, a.aligned, a.halves & 1);
		}
		product = warp_sum(product);
		if (threadIdx.x % 32 == 0) a.dgate[n] = (float)(p * (1 - p) * product);
	}
}

FORMS(row_gate_grad, gate_rows_grad)

struct weights_by_row_args {
	float *by_row;
	const float *weights;
	const int *places;
	route_fault fault;
	i64 pairs; // and rows
};

KERNEL(weights_by_row) {
	for (i64 pair = GRID_INDEX; pair < a.pairs; pair += GRID_SIZE) {
		const i64 row = one_of(a.places, pair, a.pairs, a.fault);
		if (row >= 0) a.by_row[row] = a.weights[pair];
	}
}

#define GROUP_WARPS 8    // launch_expert.go knows it as groupWarps
#define GROUP_COLUMNS 128 // of a block: launch_expert.go knows it as groupColumns

struct grouped_col_sum_args {
	float *sum;
	const float *x, *by_row; // by_row: the weight of each row, or 0
	const int *offsets;
	route_fault fault;
	i64 rows, cols;
	int experts, parts, source; // parts of each expert's rows, of which one counts
	int all; // every row has an expert
	u32 aligned, halves; // halves of x
};

// A block has some columns of an expert. Its warps take rows in turn, from the expert's first on, in float32, and are then
// added in order in float64: where the rows are changes no bit.
KERNEL(grouped_col_sum) {
	__shared__ float of_warps[GROUP_WARPS][GROUP_COLUMNS];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, expert = blockIdx.y;
	const int at = expert * a.parts + a.source;
	const i64 from = a.offsets[at], to = a.offsets[at + 1];
	const bool begins = at > 0 || from == 0, ends = !a.all || expert < a.experts - 1 || to == a.rows;
	if (from < 0 || from > to || to > a.rows || !begins || !ends) {
		if (threadIdx.x == 0) bad_route(a.fault, expert);
		return;
	}
	if (from == to) return;
	const i64 first = (i64)blockIdx.x * GROUP_COLUMNS, col = first + 4 * lane, left = a.cols - col;
	four sum = {};
	for (i64 row = from + warp; left > 0 && row < to; row += GROUP_WARPS) {
		const four v = load4<true>(a.x, row * a.cols + col, left, a.aligned, a.halves & 1);
		const float weight = a.by_row != 0 ? a.by_row[row] : 1;
		for (int c = 0; c < 4; c++) sum.at[c] = __fmaf_rn(weight, v.at[c], sum.at[c]);
	}
	for (int c = 0; c < 4; c++) of_warps[warp][4 * lane + c] = sum.at[c];
	__syncthreads();
	if (threadIdx.x >= GROUP_COLUMNS || first + threadIdx.x >= a.cols) return;
	double total = 0;
	for (int w = 0; w < GROUP_WARPS; w++) total += of_warps[w][threadIdx.x];
	a.sum[expert * a.cols + first + threadIdx.x] += (float)total;
}
