// The gates of the gated delta rule: the logarithm of the decay, g = −e^aLog·softplus(a + dtBias), and β = σ(b).
#include "four.cuh"

#define RESET (-1e6f) // tensorops.DeltaReset: what is no larger has no gradient

struct delta_gates_args {
	float *gates; // rows × 2·heads: g, then β
	const float *in, *b, *a_log, *dt_bias;
	const int *starts; // of each row's document, or 0
	i64 rows, heads, positions; // positions: of a sequence
	u32 halves; // of in and b
};

// softplus is log(1 + e^x), and sigmoid 1/(1 + e^−x).
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ inline float sigmoid(float x) {
	const float e = expf(-fabsf(x));
	return (x < 0 ? e : 1) / (1 + e);
}

KERNEL(delta_gates) {
	for (i64 i = GRID_INDEX; i < a.rows * a.heads; i += GRID_SIZE) {
		const i64 row = i / a.heads, h = i % a.heads;
		float *gates = a.gates + 2 * row * a.heads;
		gates[h] = -expf(a.a_log[h]) * softplus(load_one<true>(a.in, i, a.halves & 1) + a.dt_bias[h]);
		if (a.starts && a.starts[row] >= row % a.positions) gates[h] = RESET;
		gates[a.heads + h] = sigmoid(load_one<true>(a.b, i, a.halves & 2));
	}
}

struct delta_gates_grad_args {
	float *da, *db;
	const float *dgates, *gates, *in, *a_log, *dt_bias;
	i64 rows, heads;
	u32 halves; // of da, db and in
};

KERNEL(delta_gates_grad) {
	for (i64 i = GRID_INDEX; i < a.rows * a.heads; i += GRID_SIZE) {
		const i64 row = i / a.heads, h = i % a.heads, at = 2 * row * a.heads;
		const float slope = expf(a.a_log[h]) * sigmoid(load_one<true>(a.in, i, a.halves & 4) + a.dt_bias[h]);
		store_one<true>(a.da, i, a.gates[at + h] > RESET ? -a.dgates[at + h] * slope : 0, a.halves & 1);
		const float beta = a.gates[at + a.heads + h];
		store_one<true>(a.db, i, a.dgates[at + a.heads + h] * beta * (1 - beta), a.halves & 2);
	}
}

struct delta_gates_weight_grad_args {
	float *partial; // [blocks][2][heads]
	const float *dgates, *gates, *in, *a_log, *dt_bias;
	i64 rows, heads, rows_of_block;
	u32 halves; // of in
};

// A thread has a head and some rows, whose sums add_columns adds to those of others.
KERNEL(delta_gates_weight_grad) {
	const i64 h = GRID_INDEX;
	if (h >= a.heads) return;
	const i64 first = blockIdx.y * a.rows_of_block, end = first + a.rows_of_block < a.rows ? first + a.rows_of_block : a.rows;
	const float rate = expf(a.a_log[h]);
	float log = 0, bias = 0;
	for (i64 row = first; row < end; row++) {
		const float d = a.gates[2 * row * a.heads + h] > RESET ? a.dgates[2 * row * a.heads + h] : 0;
		log = __fmaf_rn(d, a.gates[2 * row * a.heads + h], log);
		bias -= d * rate * sigmoid(load_one<true>(a.in, row * a.heads + h, a.halves & 1) + a.dt_bias[h]);
	}
	a.partial[2 * blockIdx.y * a.heads + h] = log;
	a.partial[(2 * blockIdx.y + 1) * a.heads + h] = bias;
}
