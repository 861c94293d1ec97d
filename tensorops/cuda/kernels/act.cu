// Functions of single elements: GELU, SwiGLU, their gradients, and the sum of two tensors.
// A thread reads an element of every input before it writes the element, so an output may
// be an input.
#include "eight.cuh"
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

struct gelu_args {
	float *y;
	const float *x;
	i64 n;
	u32 aligned, halves;
};

KERNEL(gelu) {
	EACH_EIGHT(i, a.n) {
		eight v = load8(a.x, i, a.n - i, a.aligned, a.halves & 2);
		EACH_OF_EIGHT(k) {
			float p, q;
			gelu_logistic(v.at[k], p, q);
			v.at[k] *= p;
		}
		store8(a.y, i, v, a.n - i, a.aligned, a.halves & 1);
	}
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

struct gelu_grad_args {
	float *dx;
	const float *dy, *x;
	float *y; // or 0: receives the GELU of x as well; may be x
	i64 n;
	u32 aligned, halves;
};

KERNEL(gelu_grad) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight d = load8(a.dy, i, left, a.aligned, a.halves & 2);
		eight v = load8(a.x, i, left, a.aligned, a.halves & 4);
		EACH_OF_EIGHT(k) {
			float p;
			d.at[k] *= gelu_slope(v.at[k], p);
			v.at[k] *= p;
		}
		store8(a.dx, i, d, left, a.aligned, a.halves & 1);
		if (a.y != 0) store8(a.y, i, v, left, a.aligned, a.halves & 8);
	}
}

// SwiGLU (Shazeer: GLU variants improve transformer, 2020) is y = gate·σ(gate)·up.
struct swiglu_args {
	float *y;
	const float *gate, *up;
	i64 n;
	u32 aligned, halves;
};

KERNEL(swiglu) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight g = load8(a.gate, i, left, a.aligned, a.halves & 2);
		const eight up = load8(a.up, i, left, a.aligned, a.halves & 4);
		EACH_OF_EIGHT(k) {
			float p, q;
			logistic(g.at[k], p, q);
			g.at[k] = g.at[k] * p * up.at[k];
		}
		store8(a.y, i, g, left, a.aligned, a.halves & 1);
	}
}

// swiglu_grad: dgate = dy·up·σ·(1 + gate·(1 − σ)), dup = dy·gate·σ.
struct swiglu_grad_args {
	float *dgate, *dup;
	const float *dy, *gate, *up;
	float *y; // or 0: receives gate·σ(gate)·up as well; may be gate or up
	i64 n;
	u32 aligned, halves;
};

KERNEL(swiglu_grad) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		const eight d = load8(a.dy, i, left, a.aligned, a.halves & 4);
		eight g = load8(a.gate, i, left, a.aligned, a.halves & 8), up = load8(a.up, i, left, a.aligned, a.halves & 16), y;
		EACH_OF_EIGHT(k) {
			const float gate = g.at[k];
			float p, q;
			logistic(gate, p, q);
			const float dp = d.at[k] * p;
			y.at[k] = gate * p * up.at[k];
			g.at[k] = dp * up.at[k] * (1 + gate * q);
			up.at[k] = dp * gate;
		}
		store8(a.dgate, i, g, left, a.aligned, a.halves & 1);
		store8(a.dup, i, up, left, a.aligned, a.halves & 2);
		if (a.y != 0) store8(a.y, i, y, left, a.aligned, a.halves & 32);
	}
}

struct add_args {
	float *out;
	const float *a, *b;
	i64 n;
	u32 aligned, halves;
};

KERNEL(add) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight sum = load8(a.a, i, left, a.aligned, a.halves & 2);
		const eight b = load8(a.b, i, left, a.aligned, a.halves & 4);
		EACH_OF_EIGHT(k) sum.at[k] += b.at[k];
		store8(a.out, i, sum, left, a.aligned, a.halves & 1);
	}
}
