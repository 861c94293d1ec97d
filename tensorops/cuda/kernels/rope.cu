// Rotary position embedding (Su et al.: RoFormer, 2021): in each head the pair (i, i + half)
// turns by position·theta^(−i/half), or slower.
#include "four.cuh"

struct rope_args {
	float *x;
	i64 stride;
	double theta, factor, low, high; // factor 0: nothing is scaled
	int heads, half; // a head has two halves
	int period, first;
	int periods, inverse; // rows = periods·period
	int original; // positions, of llama3
	u32 halves;
};

// frequency is RoPEOpts.Frequency of list_rope.go.
__device__ inline double frequency(const rope_args &a, int i) {
	const double f = pow(a.theta, -(double)i / a.half);
	if (a.factor == 0) return f;
	if (a.original == 0) return f / a.factor;
	const double keep = fmin(fmax((a.original * f / 6.283185307179586 - a.low) / (a.high - a.low), 0.0), 1.0);
	return (1 - keep) * f / a.factor + keep * f;
}

// turned is the sine and the cosine of an angle. The device's sincos has an array in memory for large angles. Here
// the angle is divided by pi in two parts, of 106 bits together, which leaves whole turns exactly.
__device__ inline void turned(double angle, double *sine, double *cosine) {
	const double upper = 0.31830988618379067154, lower = -1.9678676675182486e-17; // 1/pi
	const double halves = angle * upper, rest = fma(angle, upper, -halves) + angle * lower;
	sincospi(halves - 2 * rint(halves / 2) + rest, sine, cosine);
}

// A thread has one angle: of pair i at one position. It turns that pair in every head of
// its rows. The angle is made in float64, for in float32 a position of 100000 would leave
// two digits of it; that is little work for an angle that many pairs share.
template <bool mixed> __device__ inline void turn(const rope_args &a) {
	const i64 at = GRID_INDEX;
	if (at >= (i64)a.period * a.half) return;
	const i64 row = at / a.half;
	const int i = (int)(at % a.half);
	double s, c;
	turned((double)(a.first + row) * frequency(a, i), &s, &c);
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
