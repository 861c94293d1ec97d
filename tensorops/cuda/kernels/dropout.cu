// Dropout of activations, with what goes around it: y = x·mask/(1−P) + skip; and random factors near 1.
#include "eight.cuh"
#include "rng.cuh"

struct drop_args {
	float *y;
	const float *x, *skip; // skip may be 0
	i64 n;
	dropout mask;
	u32 aligned, halves;
};

KERNEL(drop) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight v = load8(a.x, i, left, a.aligned, a.halves & 2);
		float factors[8];
		dropout_factors(factors, a.mask, i);
		dropout_factors(factors + 4, a.mask, i + 4);
		// What is dropped is 0, even an infinity. The product is rounded before skip is added,
		// so that the bits are those of the CPU's device.
		EACH_OF_EIGHT(k) v.at[k] = factors[k] == 0 ? 0 : __fmul_rn(v.at[k], factors[k]);
		if (a.skip != 0) {
			const eight around = load8(a.skip, i, left, a.aligned, a.halves & 4);
			EACH_OF_EIGHT(k) v.at[k] += around.at[k];
		}
		store8(a.y, i, v, left, a.aligned, a.halves & 1);
	}
}

struct jitter_args {
	float *y;
	const float *x, *skip; // skip may be 0
	i64 n;
	dropout mask; // without a threshold
	double p;
	u32 aligned, halves;
};

// jitter: y = x·(1 + p·(2u − 1)) + skip, rounded as the CPU's device rounds.
KERNEL(jitter) {
	EACH_EIGHT(i, a.n) {
		const i64 left = a.n - i;
		eight v = load8(a.x, i, left, a.aligned, a.halves & 2), around = {};
		if (a.skip != 0) around = load8(a.skip, i, left, a.aligned, a.halves & 4);
		UNROLL for (int first = 0; first < 8; first += 4) {
			const random_words words = mask_words(a.mask, i + first);
			UNROLL for (int k = 0; k < 4; k++) {
				const double u = ((double)words.at[k] + 1) / 4294967296.0;
				const double y = __dmul_rn(v.at[first + k], __dadd_rn(1, __dmul_rn(a.p, 2 * u - 1)));
				v.at[first + k] = (float)(a.skip != 0 ? __dadd_rn(y, around.at[first + k]) : y);
			}
		}
		store8(a.y, i, v, left, a.aligned, a.halves & 1);
	}
}
