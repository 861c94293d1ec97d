// bfloat16: the upper half of a float32.
#ifndef TROUPE_BF16_CUH
#define TROUPE_BF16_CUH

#include "common.cuh"

typedef unsigned short bf16; // the bits of one

// bf16_float is the number that the bits stand for.
__device__ inline float bf16_float(u32 bits) { return __uint_as_float(bits << 16); }

// bf16_bits is v rounded to bfloat16, to the nearest and ties to even. A NaN stays one: its
// upper half alone could be that of infinity.
__device__ inline u32 bf16_bits(float v) {
	const u32 bits = __float_as_uint(v);
	if (v != v) return bits >> 16 | 0x40;
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// bf16_pair is two numbers rounded so, the first in the lower half. From Ampere on that is one instruction; of
// a NaN it keeps nothing but that it is one.
__device__ inline u32 bf16_pair(float lower, float upper) {
#if !defined(TROUPE_EMULATED) && __CUDA_ARCH__ >= 800
	u32 both;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(upper), "f"(lower));
	return both;
#else
	return bf16_bits(upper) << 16 | bf16_bits(lower);
#endif
}

#endif
