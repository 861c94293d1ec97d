// Exponentials and reciprocals by the instructions that a GPU has for them, to the last bits but two. What the
// mathematical library makes of them is exact to a bit more, and takes several times as long.
#ifndef TROUPE_POWER_CUH
#define TROUPE_POWER_CUH

#include "common.cuh"

#define LOG2_E 1.44269504088896340736f

// exp2_of is 2 to the power of x; 0 where that is no normal number.
__device__ inline float exp2_of(float x) {
#ifdef TROUPE_EMULATED
	return exp2f(x);
#else
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

// reciprocal_of is 1/x.
__device__ inline float reciprocal_of(float x) {
#ifdef TROUPE_EMULATED
	return 1 / x;
#else
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

#endif
