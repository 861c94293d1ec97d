// Gates that multiply, activations without a gate, caps, and sums with a factor. A thread reads an element of every
// input before it writes the element, so an output may be an input.
#include "eight.cuh"
#include "logistic.cuh"

// The activations: Activation of list_gate.go.
#define ACT_SILU 0
#define ACT_TANH_GELU 1
#define ACT_EXACT_GELU 2
#define ACT_RELU2 3
#define ACT_SIGMOID 4
#define ACT_CLAMPED 5

// normal_cdf is the standard normal distribution function Φ, and e^(−x²/2) as w. With t = 1/(1 + p·|x|), Φ(−|x|) is
// w·t·P(t): the polynomial of gate.go of package vec.
__device__ inline float normal_cdf(float x, float &w) {
	w = exp2_of(-0.5f * LOG2_E * (x * x));
	const float t = reciprocal_of(1 + 0.3f * fabsf(x));
	float q = 0.023053893515f;
	q = q * t - 0.090006583574f;
	q = q * t + 0.054972236759f;
	q = q * t + 0.13336576361f;
	q = q * t - 0.0083581835239f;
	q = q * t + 0.15930324087f;
	q = q * t + 0.10661403025f;
	q = q * t + 0.12105560333f;
	q = q * t * w;
	return x < 0 ? q : 1 - q;
}

// activated is an activation of x, and its slope.
__device__ inline float activated(int act, float x, float &slope) {
	float p, q;
	switch (act) {
	case ACT_TANH_GELU:
		slope = gelu_slope(x, p);
		return x * p;
	case ACT_EXACT_GELU: {
		float w;
		p = normal_cdf(x, w);
		slope = p + x * w * 0.3989422804014327f; // 1/√(2π)
		return x * p;
	}
	case ACT_RELU2: {
		const float r = x < 0 ? 0 : x; // a NaN stays one
		slope = r + r;
		return r * r;
	}
	case ACT_SIGMOID:
		logistic(x, p, q);
		slope = p * q;
		return p;
	}
	logistic(x, p, q);
	slope = p * (1 + x * q);
	return x * p;
}

// gated is y = act(gate)·up, with its slopes by gate and by up.
__device__ inline float gated(int act, float limit, float alpha, float gate, float up, float &by_gate, float &by_up) {
	if (act != ACT_CLAMPED) {
		float slope;
		by_up = activated(act, gate, slope);
		by_gate = slope * up;
		return by_up * up;
	}
	const float g = gate > limit ? limit : gate, u = (up > limit ? limit : up < -limit ? -limit : up) + 1;
	float p, q;
	logistic(alpha * g, p, q);
	by_up = up > limit || up < -limit ? 0 : g * p;
	by_gate = gate > limit ? 0 : p * (1 + alpha * g * q) * u;
	return g * p * u;
}

struct gate_args {
	float *y;
	const float *gate, *up; // up may be 0: nothing is multiplied
	i64 n;
	float limit, alpha; // of the clamped SwiGLU
	int act;
	u32 aligned, halves, pad;
};

// ones are eight of them.
__device__ inline eight ones() { return eight{{1, 1, 1, 1, 1, 1, 1, 1}}; }

KERNEL(gate) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight g = load8(a.gate, i, left, a.aligned, a.halves & 2);
		const eight up = a.up != 0 ? load8(a.up, i, left, a.aligned, a.halves & 4) : ones();
		EACH_OF_EIGHT(k) {
			float by_gate, by_up;
			g.at[k] = gated(a.act, a.limit, a.alpha, g.at[k], up.at[k], by_gate, by_up);
		}
		store8(a.y, i, g, left, a.aligned, a.halves & 1);
	}
}

struct gate_grad_args {
	float *dgate, *dup; // dup may be 0, with up
	const float *dy, *gate, *up;
	i64 n;
	float limit, alpha;
	int act;
	u32 aligned, halves, pad;
};

KERNEL(gate_grad) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight d = load8(a.dy, i, left, a.aligned, a.halves & 4), g = load8(a.gate, i, left, a.aligned, a.halves & 8);
		const eight up = a.up != 0 ? load8(a.up, i, left, a.aligned, a.halves & 16) : ones();
		EACH_OF_EIGHT(k) {
			float by_gate, by_up;
			gated(a.act, a.limit, a.alpha, g.at[k], up.at[k], by_gate, by_up);
			g.at[k] = d.at[k] * by_gate;
			d.at[k] *= by_up;
		}
		store8(a.dgate, i, g, left, a.aligned, a.halves & 1);
		if (a.dup != 0) store8(a.dup, i, d, left, a.aligned, a.halves & 2);
	}
}

struct soft_cap_args {
	float *y;
	const float *dy; // or 0: y is the cap of x, else the gradient
	const float *x;
	i64 n;
	float limit, inverse;
	u32 aligned, halves;
};

// soft_cap: y = limit·tanh(x/limit), or y = dy·(1 − tanh²(x/limit)). The slope is 4·σ·(1 − σ) of twice the argument,
// which loses nothing where the tangent is close to 1.
KERNEL(soft_cap) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight x = load8(a.x, i, left, a.aligned, a.halves & 4);
		if (a.dy != 0) {
			const eight d = load8(a.dy, i, left, a.aligned, a.halves & 2);
			EACH_OF_EIGHT(k) {
				float p, q;
				logistic(2 * x.at[k] * a.inverse, p, q);
				x.at[k] = d.at[k] * (4 * p * q);
			}
		} else {
			EACH_OF_EIGHT(k) x.at[k] = a.limit * tanhf(x.at[k] * a.inverse);
		}
		store8(a.y, i, x, left, a.aligned, a.halves & 1);
	}
}

struct add_scaled_args {
	float *y;
	const float *x, *skip; // skip may be 0
	i64 n;
	float factor;
	u32 aligned, halves, pad;
};

// add_scaled: y = skip + factor·x. The product is rounded before skip is added, so that the bits are those of the CPU's
// device.
KERNEL(add_scaled) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight v = load8(a.x, i, left, a.aligned, a.halves & 2);
		EACH_OF_EIGHT(k) v.at[k] = __fmul_rn(v.at[k], a.factor);
		if (a.skip != 0) {
			const eight around = load8(a.skip, i, left, a.aligned, a.halves & 4);
			EACH_OF_EIGHT(k) v.at[k] += around.at[k];
		}
		store8(a.y, i, v, left, a.aligned, a.halves & 1);
	}
}
