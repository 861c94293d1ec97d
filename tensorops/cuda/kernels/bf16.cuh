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

#endif
