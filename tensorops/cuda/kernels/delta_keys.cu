// The gradients of the gated delta rule's keys, queries and gates, chunk by chunk: the passes of delta.cu have
// left the state before each chunk and the gradient of that after it, so all chunks are independent.
#include "delta.cuh"

// A block has a chunk of a head of keys, and takes the heads of values that read it in order. Products are made in
// tiles of 64×64, of which a thread has 4×4.
#define TILE DELTA_CHUNK
#define OWN 4
#define ACROSS (TILE / OWN) // threads
#define DEPTH 16

struct alignas(16) keys_shared {
	float w[TILE][TILE], u[TILE][TILE];
	float left[DEPTH][TILE], right[DEPTH][TILE]; // of a product; also sums of rows, by thread
	float e[TILE], last[TILE], beta[TILE];       // E, L[C] and β
	float rq[TILE], rk[TILE];
	double log[TILE], dlog[TILE]; // G and its gradient
};

typedef float own_tile[OWN][OWN];

// multiply adds a·b to a thread's part of a tile: a(i, k) and b(j, k) are elements, 0 beyond the operands.
template <class A, class B> __device__ inline void multiply(keys_shared &m, own_tile &sum, int depth, A a, B b) {
	const int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS;
	for (int k0 = 0; k0 < depth; k0 += DEPTH) {
		__syncthreads();
		for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
			const int i = at / DEPTH, k = at % DEPTH;
			m.left[k][i] = k0 + k < depth ? a(i, k0 + k) : 0;
			m.right[k][i] = k0 + k < depth ? b(i, k0 + k) : 0;
		}
		__syncthreads();
		for (int k = 0; k < DEPTH; k++) {
			const quad l = aligned_at(&m.left[k][OWN * y]), r = aligned_at(&m.right[k][OWN * x]);
			const float of_left[OWN] = {l.x, l.y, l.z, l.w}, of_right[OWN] = {r.x, r.y, r.z, r.w};
			UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) sum[i][j] = __fmaf_rn(of_left[i], of_right[j], sum[i][j]);
		}
	}
	__syncthreads();
}

// add_rows calls add(i, sum) for each row i, of one thread, with the sum of what all threads have of it.
template <class F> __device__ inline void add_rows(keys_shared &m, const float (&of_rows)[OWN], bool columns, F add) {
	const int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS, line = columns ? x : y, place = columns ? y : x;
	float *sums = &m.left[0][0];
	__syncthreads();
	UNROLL for (int i = 0; i < OWN; i++) sums[(OWN * line + i) * ACROSS + place] = of_rows[i];
	__syncthreads();
	if (threadIdx.x < TILE) {
		double sum = 0;
		for (int k = 0; k < ACROSS; k++) sum += sums[threadIdx.x * ACROSS + k];
		add(threadIdx.x, sum);
	}
	__syncthreads();
}

// scaled multiplies a tile's rows by factors, and finds the products of its rows, from column c0 on, with those of
// q̂ or k̂.
template <class U> __device__ inline void scaled(own_tile &tile, const float *factors, float sign, int c0, U unit, float (&dots)[OWN]) {
	const int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS;
	UNROLL for (int i = 0; i < OWN; i++) {
		dots[i] = 0;
		UNROLL for (int j = 0; j < OWN; j++) {
			tile[i][j] *= sign * factors[OWN * y + i];
			dots[i] = __fmaf_rn(tile[i][j], unit(OWN * y + i, c0 + OWN * x + j), dots[i]);
		}
	}
}

// row_norms finds 1/√(Σx² + eps) of the chunk's rows, times a factor.
__device__ inline void row_norms(float *norms, const float *x, i64 stride, int n, int width, double eps, double factor) {
	const int lane = threadIdx.x % 32;
	for (int i = threadIdx.x / 32; i < n; i += THREADS / 32) {
		float sum = 0;
		for (int k = lane; k < width; k += 32) sum = __fmaf_rn(x[i * stride + k], x[i * stride + k], sum);
		sum = warp_sum(sum);
		if (lane == 0) norms[i] = (float)(factor / sqrt(sum + eps));
	}
}

// norms_grad takes the gradient of normalised rows through their norms, in place: norms have the factor.
__device__ inline void norms_grad(float *dx, i64 dstride, const float *x, i64 stride, const float *norms, int n, int width, float factor) {
	const int lane = threadIdx.x % 32;
	for (int i = threadIdx.x / 32; i < n; i += THREADS / 32) {
		const float r = norms[i] / factor;
		float dot = 0;
		for (int k = lane; k < width; k += 32) dot = __fmaf_rn(x[i * stride + k] * r, dx[i * dstride + k], dot);
		dot = warp_sum(dot);
		for (int k = lane; k < width; k += 32) dx[i * dstride + k] = norms[i] * __fmaf_rn(-x[i * stride + k] * r, dot, dx[i * dstride + k]);
	}
}

typedef delta_grad_args gated_delta_keys_args;

TILED_KERNEL(gated_delta_keys, 1) {
	__shared__ keys_shared m;
	const delta_sizes &s = a.sizes;
	const int sequence = blockIdx.y / s.key_heads, keys = blockIdx.y % s.key_heads, group = s.value_heads / s.key_heads;
	const i64 chunks = (s.positions + DELTA_CHUNK - 1) / DELTA_CHUNK, first = (i64)blockIdx.x * DELTA_CHUNK;
	const int n = (int)(s.positions - first < DELTA_CHUNK ? s.positions - first : DELTA_CHUNK);
	const int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS, wide = s.key_width, deep = s.value_width;
	const i64 row = sequence * s.positions + first, width = (i64)s.value_heads * deep;
	const float *q = a.q + row * s.q_stride + (i64)keys * wide, *k = a.k + row * s.k_stride + (i64)keys * wide;
	float *dq = a.dq + row * a.dq_stride + (i64)keys * wide, *dk = a.dk + row * a.dk_stride + (i64)keys * wide;
	row_norms(m.rq, q, s.q_stride, n, wide, s.eps, s.scale);
	row_norms(m.rk, k, s.k_stride, n, wide, s.eps, 1);
	const auto unit_q = [&](int i, int c) { return i < n && c < wide ? q[i * s.q_stride + c] * m.rq[i] : 0; };
	const auto unit_k = [&](int i, int c) { return i < n && c < wide ? k[i * s.k_stride + c] * m.rk[i] : 0; };

	for (int of = keys * group; of < (keys + 1) * group; of++) {
		const i64 at = row * width + (i64)of * deep, size = (i64)wide * deep;
		const i64 chunk = (((i64)sequence * s.value_heads + of) * chunks + blockIdx.x) * size;
		const float *dout = a.dout + at, *rest = a.rest + at, *drest = a.drest + at, *state = a.states + chunk, *dstate = a.dstates + chunk;
		const float *gates = a.gates + row * 2 * s.value_heads + of;
		float *dgates = a.dgates + row * 2 * s.value_heads + of;
		__syncthreads();
		if (threadIdx.x == 0) {
			double sum = 0;
			for (int i = 0; i < n; i++) m.log[i] = sum += gates[(i64)i * 2 * s.value_heads];
		}
		__syncthreads();
		if (threadIdx.x < TILE) {
			const int i = threadIdx.x;
			m.e[i] = i < n ? expf((float)m.log[i]) : 0;
			m.last[i] = i < n ? expf((float)(m.log[n - 1] - m.log[i])) : 0;
			m.beta[i] = i < n ? gates[(i64)i * 2 * s.value_heads + s.value_heads] : 0;
			m.dlog[i] = 0;
		}
		__syncthreads();
		const auto of_out = [&](int i, int c) { return i < n ? dout[i * width + c] : 0; };
		const auto of_d = [&](int i, int c) { return i < n ? m.beta[i] * rest[i * width + c] : 0; };
		const auto of_z = [&](int i, int c) { return i < n ? m.beta[i] * drest[i * width + c] : 0; };

		// W and U + Uᵀ, and pairs, what each pair adds to the gradient of the first one's G.
		own_tile w = {}, u = {}, products = {}, pairs = {};
		multiply(m, w, deep, of_out, of_d);
		multiply(m, products, wide, unit_q, unit_k);
		multiply(m, u, deep, of_z, of_d);
		UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) {
			const int p = OWN * y + i, r = OWN * x + j;
			const float l = p < n && r <= p ? expf((float)(m.log[p] - m.log[r])) : 0;
			m.w[p][r] = l * w[i][j];
			if (r < p) pairs[i][j] = l * w[i][j] * products[i][j];
			if (r < p) m.u[p][r] = m.u[r][p] = -l * u[i][j];
			if (r == p) m.u[p][r] = 0;
			products[i][j] = 0;
		}
		multiply(m, products, wide, unit_k, unit_k);
		float rows[OWN] = {}, columns[OWN] = {};
		UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) {
			const int p = OWN * y + i, r = OWN * x + j;
			if (r < p) pairs[i][j] = __fmaf_rn(m.u[p][r], products[i][j], pairs[i][j]);
			rows[i] += pairs[i][j];
			columns[j] += pairs[i][j];
		}
		add_rows(m, rows, false, [&](int i, double sum) { m.dlog[i] += sum; });
		add_rows(m, columns, true, [&](int i, double sum) { m.dlog[i] -= sum; });

		for (int c0 = 0; c0 < wide; c0 += TILE) {
			const auto of_state = [&](int c, int v) { return c0 + c < wide ? state[(i64)(c0 + c) * deep + v] : 0; };
			const auto of_dstate = [&](int c, int v) { return c0 + c < wide ? dstate[(i64)(c0 + c) * deep + v] : 0; };
			// stored writes a tile, or adds it to what is there of the heads before.
			const auto stored = [&](float *to, i64 stride, const own_tile &tile) {
				UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) {
					const int p = OWN * y + i, c = c0 + OWN * x + j;
					if (p >= n || c >= wide) continue;
					float &v = to[p * stride + c];
					v = of == keys * group ? tile[i][j] : v + tile[i][j];
				}
			};
			own_tile queries = {}, after = {}, before = {};
			float dots[OWN];
			multiply(m, queries, deep, of_out, of_state);
			scaled(queries, m.e, 1, c0, unit_q, dots);
			add_rows(m, dots, false, [&](int i, double sum) { m.dlog[i] += sum; });
			multiply(m, queries, n, [&](int i, int j) { return m.w[i][j]; }, [&](int c, int j) { return unit_k(j, c0 + c); });
			stored(dq, a.dq_stride, queries);

			multiply(m, after, deep, of_d, of_dstate);
			scaled(after, m.last, 1, c0, unit_k, dots);
			add_rows(m, dots, false, [&](int i, double sum) {
				m.dlog[i] -= sum;
				m.log[i] = sum; // log is read no more but here
			});
			if (threadIdx.x == 0) {
				for (int i = 0; i < n; i++) m.dlog[n - 1] += m.log[i];
			}
			multiply(m, before, deep, of_z, of_state);
			scaled(before, m.e, -1, c0, unit_k, dots);
			add_rows(m, dots, false, [&](int i, double sum) { m.dlog[i] += sum; });
			UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) after[i][j] += before[i][j];
			multiply(m, after, n, [&](int i, int j) { return m.w[j][i]; }, [&](int c, int j) { return unit_q(j, c0 + c); });
			multiply(m, after, n, [&](int i, int j) { return m.u[i][j]; }, [&](int c, int j) { return unit_k(j, c0 + c); });
			stored(dk, a.dk_stride, after);
		}

		double kept = 0;
		for (i64 i = threadIdx.x; i < size; i += THREADS) kept = __fma_rn((double)state[i], (double)dstate[i], kept);
		kept = block_sum(kept);
		const int lane = threadIdx.x % 32;
		for (int i = threadIdx.x / 32; i < n; i += THREADS / 32) {
			float sum = 0;
			for (int c = lane; c < deep; c += 32) sum = __fmaf_rn(drest[i * width + c], rest[i * width + c], sum);
			sum = warp_sum(sum);
			if (lane == 0) dgates[(i64)i * 2 * s.value_heads + s.value_heads] = sum;
		}
		__syncthreads();
		if (threadIdx.x == 0) {
			double sum = m.e[n - 1] * kept;
			for (int i = n - 1; i >= 0; i--) {
				sum += m.dlog[i];
				dgates[(i64)i * 2 * s.value_heads] = (float)sum;
			}
		}
	}
	__syncthreads();
	norms_grad(dq, a.dq_stride, q, s.q_stride, m.rq, n, wide, s.scale);
	norms_grad(dk, a.dk_stride, k, s.k_stride, m.rk, n, wide, 1);
}
