// Eight neighbouring elements for a thread: 16 bytes of bfloat16, or twice as many of float32, where
// addresses allow it.
#ifndef TROUPE_EIGHT_CUH
#define TROUPE_EIGHT_CUH

#include "four.cuh"

struct eight {
	float at[8];
};

// EACH_EIGHT goes through n elements by the threads of a grid: i is the first of eight.
#define EACH_EIGHT(i, n) for (i64 i = 8 * GRID_INDEX; i < (n); i += 8 * GRID_SIZE)
#define EACH_OF_EIGHT(k) UNROLL for (int k = 0; k < 8; k++)

// load8 reads the eight from place at on, of which left exist, and puts rest for the others. half says
// that they are bfloat16, though the address is said to be of floats.
__device__ inline eight load8(const float *p, i64 at, i64 left, bool aligned, u32 half, float rest = 0) {
	eight f;
	if (aligned && left >= 8) {
		if (half) {
			const uint4 w = *(const uint4 *)((const bf16 *)p + at);
			const u32 words[4] = {w.x, w.y, w.z, w.w};
			UNROLL for (int k = 0; k < 4; k++) {
				f.at[2 * k] = bf16_float(words[k]);
				f.at[2 * k + 1] = bf16_float(words[k] >> 16);
			}
			return f;
		}
		const quad a = *(const quad *)(p + at), b = *(const quad *)(p + at + 4);
		return eight{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
	}
	EACH_OF_EIGHT(k) f.at[k] = k < left ? load_one<true>(p, at + k, half) : rest;
	return f;
}

// store8 writes those of the eight that exist.
__device__ inline void store8(float *p, i64 at, const eight &f, i64 left, bool aligned, u32 half) {
	if (aligned && left >= 8) {
		if (half) {
			u32 words[4];
			UNROLL for (int k = 0; k < 4; k++) words[k] = bf16_pair(f.at[2 * k], f.at[2 * k + 1]);
			*(uint4 *)((bf16 *)p + at) = make_uint4(words[0], words[1], words[2], words[3]);
			return;
		}
		*(quad *)(p + at) = quad{f.at[0], f.at[1], f.at[2], f.at[3]};
		*(quad *)(p + at + 4) = quad{f.at[4], f.at[5], f.at[6], f.at[7]};
		return;
	}
	EACH_OF_EIGHT(k) if (k < left) store_one<true>(p, at + k, f.at[k], half);
}

// as_stored is what of the eight is left when they are stored and read again.
__device__ inline eight as_stored(eight f, u32 half) {
	if (half)
		UNROLL for (int k = 0; k < 4; k++) {
			const u32 words = bf16_pair(f.at[2 * k], f.at[2 * k + 1]);
			f.at[2 * k] = bf16_float(words);
			f.at[2 * k + 1] = bf16_float(words >> 16);
		}
	return f;
}

#endif
