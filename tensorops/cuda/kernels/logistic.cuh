// The logistic function, and GELU by it.
#ifndef TROUPE_LOGISTIC_CUH
#define TROUPE_LOGISTIC_CUH

#include "power.cuh"

// logistic is σ(u) = 1/(1 + e^−u) as p, and 1 − σ(u) as q. The exponential is taken of
// −|u|: it doesn't overflow, and the smaller of p and q keeps its precision.
__device__ inline void logistic(float u, float &p, float &q) {
	const float e = exp2_of(-LOG2_E * fabsf(u));
	const float larger = reciprocal_of(1 + e), smaller = e * larger;
	p = u < 0 ? smaller : larger;
	q = u < 0 ? larger : smaller;
}

// GELU's tanh form (Hendrycks, Gimpel: Gaussian error linear units, 2016) is x·σ(s), with
// s = 2·√(2/π)·(x + 0.044715x³) = x·(GELU_A + GELU_B·x²), for (1 + tanh z)/2 = σ(2z).
#define GELU_A 1.5957691216057308f
#define GELU_B (GELU_A * 0.044715f)

// gelu_logistic is σ(s) as p, and 1 − σ(s) as q: the same bits in each kernel.
__device__ inline void gelu_logistic(float x, float &p, float &q) {
	logistic(__fmul_rn(x, __fmaf_rn(__fmul_rn(GELU_B, x), x, GELU_A)), p, q);
}

// gelu_slope is σ(s) + x·σ(s)·(1 − σ(s))·ds/dx, and σ(s) as p.
__device__ inline float gelu_slope(float x, float &p) {
	// From ±16 on σ(s) is 0 or 1, but ds/dx may be infinite.
	const float edge = 16;
	x = x > edge ? edge : x < -edge ? -edge : x;
	float q;
	gelu_logistic(x, p, q);
	return p + x * (p * q) * (GELU_A + 3 * GELU_B * x * x);
}

#endif
