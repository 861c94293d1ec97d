// Rotary position embedding (Su et al.: RoFormer, 2021): in each head the pair (i, i + pairs), or
// (2i, 2i + 1), turns by position·frequency(i). The channels of a head behind these stay.
#include "four.cuh"

#define ROPE_PAIRS 256 // of a launch: launch_rope.go knows it as ropePairs

struct rope_args {
	float *x;
	const int *starts; // of each row's document, or none
	i64 stride;
	double scale; // of cosines and sines
	int heads, width; // channels of a head
	int apart, step;  // how far the two of a pair are apart, and the first ones of two pairs
	int first_pair, some; // pairs of this launch
	int period, first;
	int periods, inverse; // rows = periods·period
	u32 halves, pad;
	double frequencies[ROPE_PAIRS]; // of this launch
};

// turned is the sine and the cosine of an angle. The device's sincos has an array in memory for large angles. Here
// the angle is divided by pi in two parts, of 106 bits together, which leaves whole turns exactly.
__device__ inline void turned(double angle, double *sine, double *cosine) {
	const double upper = 0.31830988618379067154, lower = -1.9678676675182486e-17; // 1/pi
	const double halves = angle * upper, rest = fma(angle, upper, -halves) + angle * lower;
	sincospi(halves - 2 * rint(halves / 2) + rest, sine, cosine);
}

// A thread has one angle: of pair i at one position. It turns that pair in every head of
// its rows. Where documents share a sequence, each row has an angle of its own. The angle is made in float64, for in float32 a position of 100000 would leave
// two digits of it; that is little work for an angle that many pairs share.
template <bool mixed> __device__ inline void turn(const rope_args &a) {
	const i64 at = GRID_INDEX;
	if (at >= (i64)a.period * a.some) return;
	const i64 row = at / a.some;
	const int i = (int)(at % a.some);
	double s, c;
	turned((double)(a.first + row) * a.frequencies[i], &s, &c);
	float sine = (float)((a.inverse ? -s : s) * a.scale), cosine = (float)(c * a.scale);
	for (i64 n = blockIdx.y; n < a.periods; n += gridDim.y) {
		if (a.starts) {
			turned((double)(a.first + row - a.starts[n * a.period + row]) * a.frequencies[i], &s, &c);
			sine = (float)((a.inverse ? -s : s) * a.scale), cosine = (float)(c * a.scale);
		}
		i64 pair = (n * a.period + row) * a.stride + (i64)a.step * (a.first_pair + i);
		for (int h = 0; h < a.heads; h++, pair += a.width) {
			const float u = load_one<mixed>(a.x, pair, a.halves), v = load_one<mixed>(a.x, pair + a.apart, a.halves);
			store_one<mixed>(a.x, pair, u * cosine - v * sine, a.halves);
			store_one<mixed>(a.x, pair + a.apart, v * cosine + u * sine, a.halves);
		}
	}
}

FORMS(rope, turn)
