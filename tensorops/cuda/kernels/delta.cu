// The gated delta rule, column by column of the state: those are independent of each other. A block has 32
// columns of a head of values, each shared by eight lanes, and goes through the positions in order.
#include "delta.cuh"

// forward takes columns of the state through all positions. With o(S) = Sᵀ·q̂ of the new state, one pass over a
// column gives both k̂·S and q̂·S of the old one: o = e^g·(q̂·S) + (q̂·k̂)·β·n.
template <int N> __device__ inline void forward(const delta_args &a) {
	__shared__ delta_rows rows;
	const delta_sizes &s = a.sizes;
	const delta_head h(s, blockIdx.y);
	const i64 chunks = (s.positions + DELTA_CHUNK - 1) / DELTA_CHUNK;
	delta_column<N> state;
	if (a.state != 0) state.load(s, a.state + h.state(s, 0, 1));
	for (i64 t = 0; t < s.positions; t += DELTA_STEP) {
		const int n = (int)(s.positions - t < DELTA_STEP ? s.positions - t : DELTA_STEP);
		if (a.states != 0 && t % DELTA_CHUNK == 0) state.store(s, a.states + h.state(s, t / DELTA_CHUNK, chunks));
		__syncthreads();
		rows.read(s, h, a.q, a.k, a.gates, t, n);
		rows.columns(s, n, [&](int r, int j, int c) { rows.v[r][j] = a.v[h.row(s, t + r) * s.v_stride + (i64)h.of * s.value_width + c]; });
		__syncthreads();
		for (int r = 0; r < n; r++) {
			float seen = 0, out = 0;
			state.each(s, [&](float &v, int i) {
				seen = __fmaf_rn(v, rows.k[r][i], seen);
				out = __fmaf_rn(v, rows.q[r][i], out);
			});
			seen = column_sum(seen), out = column_sum(out);
			const float decay = rows.decay[r], rest = __fmaf_rn(-decay, seen, rows.v[r][state.column]), d = rows.beta[r] * rest;
			state.each(s, [&](float &v, int i) { v = __fmaf_rn(rows.k[r][i], d, v * decay); });
			__syncwarp(); // all lanes have read v
			if (state.lane == 0) rows.v[r][state.column] = a.rest != 0 ? rest : __fmaf_rn(decay, out, rows.both[r] * d);
		}
		__syncthreads();
		rows.columns(s, n, [&](int r, int j, int c) {
			const i64 at = h.row(s, t + r) * s.value_heads * s.value_width + (i64)h.of * s.value_width + c;
			if (a.rest != 0) a.rest[at] = rows.v[r][j];
			else a.o[at] = rows.v[r][j];
		});
	}
	if (a.state != 0) state.store(s, a.state + h.state(s, 0, 1));
}

typedef delta_args gated_delta_64_args, gated_delta_128_args, gated_delta_256_args;

TILED_KERNEL(gated_delta_64, 2) { forward<64 / DELTA_LANES>(a); }
TILED_KERNEL(gated_delta_128, 2) { forward<128 / DELTA_LANES>(a); }
TILED_KERNEL(gated_delta_256, 1) { forward<256 / DELTA_LANES>(a); }

// backward takes columns of the gradient of the state from the last position to the first: it keeps that of the
// state after each chunk, the gradient of β·n, and makes dv of it.
template <int N> __device__ inline void backward(const delta_grad_args &a) {
	__shared__ delta_rows rows;
	const delta_sizes &s = a.sizes;
	const delta_head h(s, blockIdx.y);
	const i64 chunks = (s.positions + DELTA_CHUNK - 1) / DELTA_CHUNK;
	delta_column<N> grad;
	for (i64 t = (s.positions - 1) / DELTA_STEP * DELTA_STEP; t >= 0; t -= DELTA_STEP) {
		const int n = (int)(s.positions - t < DELTA_STEP ? s.positions - t : DELTA_STEP);
		if ((t + n) % DELTA_CHUNK == 0 || t + n == s.positions) grad.store(s, a.dstates + h.state(s, t / DELTA_CHUNK, chunks));
		__syncthreads();
		rows.read(s, h, a.q, a.k, a.gates, t, n);
		rows.columns(s, n, [&](int r, int j, int c) { rows.v[r][j] = a.dout[(h.row(s, t + r) * s.value_heads + h.of) * s.value_width + c]; });
		__syncthreads();
		for (int r = n - 1; r >= 0; r--) {
			const float d = rows.v[r][grad.column];
			float sum = 0;
			grad.each(s, [&](float &v, int i) {
				v = __fmaf_rn(rows.q[r][i], d, v);
				sum = __fmaf_rn(v, rows.k[r][i], sum);
			});
			sum = column_sum(sum);
			const float decay = rows.decay[r], z = rows.beta[r] * sum;
			grad.each(s, [&](float &v, int i) { v = decay * __fmaf_rn(-rows.k[r][i], z, v); });
			__syncwarp(); // all lanes have read v
			if (grad.lane == 0) rows.v[r][grad.column] = sum;
		}
		__syncthreads();
		rows.columns(s, n, [&](int r, int j, int c) {
			const i64 row = h.row(s, t + r), at = (i64)h.of * s.value_width + c;
			a.drest[row * s.value_heads * s.value_width + at] = rows.v[r][j];
			a.dv[row * a.dv_stride + at] = rows.beta[r] * rows.v[r][j];
		});
	}
}

typedef delta_grad_args gated_delta_back_64_args, gated_delta_back_128_args, gated_delta_back_256_args;

TILED_KERNEL(gated_delta_back_64, 2) { backward<64 / DELTA_LANES>(a); }
TILED_KERNEL(gated_delta_back_128, 2) { backward<128 / DELTA_LANES>(a); }
TILED_KERNEL(gated_delta_back_256, 1) { backward<256 / DELTA_LANES>(a); }
