// Causal depthwise convolutions with SiLU, and their gradients. x is sequences of rows of channels, and the
// rows of a matrix may lie further apart than it has columns.
#include "four.cuh"
#include "power.cuh"

struct conv_args {
	float *out;              // y, dx or partial sums
	const float *x, *weight; // weight is channels × taps
	const float *dy;
	float *state; // or 0: the rows before the first, sequences × (taps−1) × channels
	const int *starts; // of each row's document, or 0
	i64 x_stride, out_stride;
	i64 sequences, positions, channels, rows_of_block;
	int taps;
	u32 halves; // of out, x, dy and state
};

typedef conv_args causal_conv_args, causal_conv_state_args, causal_conv_grad_args, causal_conv_weight_grad_args;

// sigmoid is 1/(1 + e^−u): the exponential is taken of −|u|, so that it does not overflow.
__device__ inline float sigmoid(float u) {
	const float e = exp2_of(-LOG2_E * fabsf(u)), larger = reciprocal_of(1 + e);
	return u < 0 ? e * larger : larger;
}

// input is channel c of row t of a sequence; before the first row it is the state's, or 0.
__device__ inline float input(const conv_args &a, i64 sequence, i64 t, i64 c) {
	if (t >= 0) return load_one<true>(a.x, (sequence * a.positions + t) * a.x_stride + c, a.halves & 2);
	if (a.state == 0) return 0;
	return load_one<true>(a.state, (sequence * (a.taps - 1) + a.taps - 1 + t) * a.channels + c, a.halves & 8);
}

// sees reports whether row t of a sequence reads row from.
__device__ inline bool sees(const conv_args &a, i64 sequence, i64 t, i64 from) {
	return !a.starts || from == t || from >= a.starts[sequence * a.positions + t];
}

// sum is the convolution before SiLU.
__device__ inline float sum(const conv_args &a, i64 sequence, i64 t, i64 c) {
	float s = 0;
	for (int k = 0; k < a.taps; k++) {
		const i64 from = t - a.taps + 1 + k;
		if (sees(a, sequence, t, from)) s = __fmaf_rn(a.weight[c * a.taps + k], input(a, sequence, from, c), s);
	}
	return s;
}

// slope is dy·SiLU′ of it.
__device__ inline float slope(const conv_args &a, i64 sequence, i64 t, i64 c) {
	const float u = sum(a, sequence, t, c), p = sigmoid(u);
	return load_one<true>(a.dy, (sequence * a.positions + t) * a.channels + c, a.halves & 4) * (p * (1 + u * (1 - p)));
}

KERNEL(causal_conv) {
	for (i64 i = GRID_INDEX; i < a.sequences * a.positions * a.channels; i += GRID_SIZE) {
		const i64 row = i / a.channels, c = i % a.channels;
		const float u = sum(a, row / a.positions, row % a.positions, c);
		store_one<true>(a.out, row * a.out_stride + c, u * sigmoid(u), a.halves & 1);
	}
}

// A thread has a channel of a sequence, of which it moves the last rows to the state.
KERNEL(causal_conv_state) {
	for (i64 i = GRID_INDEX; i < a.sequences * a.channels; i += GRID_SIZE) {
		const i64 sequence = i / a.channels, c = i % a.channels, rows = a.taps - 1;
		for (i64 r = 0; r < rows; r++) {
			const float v = input(a, sequence, a.positions - rows + r, c);
			store_one<true>(a.state, (sequence * rows + r) * a.channels + c, v, a.halves & 8);
		}
	}
}

KERNEL(causal_conv_grad) {
	for (i64 i = GRID_INDEX; i < a.sequences * a.positions * a.channels; i += GRID_SIZE) {
		const i64 row = i / a.channels, c = i % a.channels, sequence = row / a.positions, t = row % a.positions;
		float d = 0;
		for (int k = 0; k < a.taps; k++) {
			const i64 after = t + a.taps - 1 - k;
			if (after < a.positions && sees(a, sequence, after, t)) d = __fmaf_rn(a.weight[c * a.taps + k], slope(a, sequence, after, c), d);
		}
		store_one<true>(a.out, row * a.out_stride + c, d, a.halves & 1);
	}
}

// A thread has a channel and some rows, of all sequences one after another. Its sums are added to those of other
// rows by add_columns.
KERNEL(causal_conv_weight_grad) {
	const i64 c = GRID_INDEX;
	if (c >= a.channels) return;
	const i64 first = blockIdx.y * a.rows_of_block, rows = a.sequences * a.positions;
	const i64 end = first + a.rows_of_block < rows ? first + a.rows_of_block : rows;
	for (int k = 0; k < a.taps; k++) {
		float d = 0;
		for (i64 row = first; row < end; row++) {
			const i64 sequence = row / a.positions, t = row % a.positions;
			const i64 from = t - a.taps + 1 + k;
			if (sees(a, sequence, t, from)) d = __fmaf_rn(slope(a, sequence, t, c), input(a, sequence, from, c), d);
		}
		a.out[((i64)blockIdx.y * a.channels + c) * a.taps + k] = d;
	}
}
