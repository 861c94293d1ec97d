// Functions of single elements: GELU, SwiGLU, their gradients, and the sum of two tensors.
// A thread reads an element of every input before it writes the element, so an output may
// be an input.
#include "eight.cuh"
#include "logistic.cuh"

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
