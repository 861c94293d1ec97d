// Dropout of activations, with what goes around it: y = x·mask/(1−P) + skip.
#include "four.cuh"
#include "rng.cuh"

struct drop_args {
	float *y;
	const float *x, *skip; // skip may be 0
	i64 n;
	dropout mask;
	u32 aligned, halves;
};

template <bool mixed> __device__ inline void drop_each(const drop_args &a) {
	EACH_FOUR(i, a.n) {
		const i64 left = a.n - i;
		four v = load4<mixed>(a.x, i, left, a.aligned, a.halves & 2);
		float factors[4];
		dropout_factors(factors, a.mask, i);
		// What is dropped is 0, even an infinity. The product is rounded before skip is added,
		// so that the bits are those of the CPU's device.
		for (int k = 0; k < 4; k++) v.at[k] = factors[k] == 0 ? 0 : __fmul_rn(v.at[k], factors[k]);
		if (a.skip != 0) {
			const four around = load4<mixed>(a.skip, i, left, a.aligned, a.halves & 4);
			for (int k = 0; k < 4; k++) v.at[k] += around.at[k];
		}
		store4<mixed>(a.y, i, v, left, a.aligned, a.halves & 1);
	}
}

FORMS(drop, drop_each)
