// Four neighbouring floats, which a thread reads or writes at once where they are aligned. In
// memory they may be bfloat16.
#ifndef TROUPE_QUAD_CUH
#define TROUPE_QUAD_CUH

#include "bf16.cuh"

struct alignas(16) quad {
	float x, y, z, w;
};

// aligned_at is the quad in shared memory that begins at p, a multiple of 16 bytes.
__device__ inline quad &aligned_at(float *p) { return *(quad *)p; }
__device__ inline quad aligned_at(const float *p) { return *(const quad *)p; }

// load_quad reads four floats, of which the first count exist, and puts 0 for the others.
// Only if aligned may they be read at once.
__device__ inline quad load_quad(const float *p, i64 count, bool aligned) {
	quad v = {0, 0, 0, 0};
	if (aligned && count >= 4) return *(const quad *)p;
	if (count > 0) v.x = p[0];
	if (count > 1) v.y = p[1];
	if (count > 2) v.z = p[2];
	if (count > 3) v.w = p[3];
	return v;
}

// store_quad writes the first count of four floats.
__device__ inline void store_quad(float *p, quad v, i64 count, bool aligned) {
	if (aligned && count >= 4) {
		*(quad *)p = v;
		return;
	}
	if (count > 0) p[0] = v.x;
	if (count > 1) p[1] = v.y;
	if (count > 2) p[2] = v.z;
	if (count > 3) p[3] = v.w;
}

struct alignas(8) bf16_quad {
	u32 low, high; // two elements each
};

// load_quad of bfloat16 widens what it reads.
__device__ inline quad load_quad(const bf16 *p, i64 count, bool aligned) {
	quad v = {0, 0, 0, 0};
	if (aligned && count >= 4) {
		const bf16_quad q = *(const bf16_quad *)p;
		return quad{bf16_float(q.low), bf16_float(q.low >> 16), bf16_float(q.high), bf16_float(q.high >> 16)};
	}
	if (count > 0) v.x = bf16_float(p[0]);
	if (count > 1) v.y = bf16_float(p[1]);
	if (count > 2) v.z = bf16_float(p[2]);
	if (count > 3) v.w = bf16_float(p[3]);
	return v;
}

// store_quad of bfloat16 rounds what it writes.
__device__ inline void store_quad(bf16 *p, quad v, i64 count, bool aligned) {
	if (aligned && count >= 4) {
		*(bf16_quad *)p = bf16_quad{bf16_pair(v.x, v.y), bf16_pair(v.z, v.w)};
		return;
	}
	if (count > 0) p[0] = (bf16)bf16_bits(v.x);
	if (count > 1) p[1] = (bf16)bf16_bits(v.y);
	if (count > 2) p[2] = (bf16)bf16_bits(v.z);
	if (count > 3) p[3] = (bf16)bf16_bits(v.w);
}

#endif
