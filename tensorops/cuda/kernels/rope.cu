// Rotary position embedding (Su et al.: RoFormer, 2021): in each head the pair (i, i + half)
// turns by position·theta^(−i/half).
#include "four.cuh"

struct rope_args {
	float *x;
	i64 stride;
	double theta;
	int heads, half; // a head has two halves
	int period, first;
	int periods, inverse; // rows = periods·period
	u32 halves, pad;
};

// A thread has one angle: of pair i at one position. It turns that pair in every head of
// its rows. The angle is made in float64, for in float32 a position of 100000 would leave
// two digits of it; that is little work for an angle that many pairs share.
template <bool mixed> __device__ inline void turn(const rope_args &a) {
	const i64 at = GRID_INDEX;
	if (at >= (i64)a.period * a.half) return;
	const i64 row = at / a.half;
	const int i = (int)(at % a.half);
	double s, c;
	sincos((double)(a.first + row) * pow(a.theta, -(double)i / a.half), &s, &c);
	const float sine = (float)(a.inverse ? -s : s), cosine = (float)c;
	for (i64 n = blockIdx.y; n < a.periods; n += gridDim.y) {
		i64 pair = (n * a.period + row) * a.stride + i;
		for (int h = 0; h < a.heads; h++, pair += 2 * a.half) {
			const float u = load_one<mixed>(a.x, pair, a.halves), v = load_one<mixed>(a.x, pair + a.half, a.halves);
			store_one<mixed>(a.x, pair, u * cosine - v * sine, a.halves);
			store_one<mixed>(a.x, pair + a.half, v * cosine + u * sine, a.halves);
		}
	}
}

FORMS(rope, turn)
