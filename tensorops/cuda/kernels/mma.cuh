// Products of bfloat16 on the tensor cores, with sums in float32 (Ampere and later).
//
// One instruction, mma.m16n8k16, adds the product of A (16×16) and B (16×8) to C. Each lane
// of a warp, number 4·g + t, has a piece of all three (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"), with two neighbours in a word, the first in its
// lower half:
//
//	A  a0: row g, columns 2t, 2t+1      a1: row g+8, the same columns
//	   a2: row g, columns 2t+8, 2t+9    a3: row g+8, the same columns
//	B  b0: column g, rows 2t, 2t+1      b1: column g, rows 2t+8, 2t+9
//	C  c0, c1: row g, columns 2t, 2t+1  c2, c3: row g+8, the same columns
//
// Which column of a matrix is column 0 of the instruction's is ours to choose. Everywhere
// here 16 of them are in this order: element 4x + 2y + z is in place 8y + 2x + z (y, z: 0 or
// 1). So what a lane has of a row are four neighbours, from 4t on, of the sums as well as of
// A. The depth, A's columns and B's rows, is in the same order, so that sums of one product
// are the A of the next as they are (see left_of).
#ifndef TROUPE_MMA_CUH
#define TROUPE_MMA_CUH

#include "tile.cuh"

// place_of is where an element is in the order above.
__device__ inline int place_of(int element) {
	return (element & ~15) | (element & 2) << 2 | (element & 12) >> 1 | (element & 1);
}

// part is a lane's part of 16×16 numbers: rows g and g+8, columns 4t to 4t+3.
struct part {
	float at[2][4];
};

// left is a lane's part of 16×16 numbers to multiply, A. right is that of a B of 16×16: b0
// and b1 of its columns in the places 0 to 7, then those of the others.
struct left {
	u32 at[4];
};

struct right {
	u32 at[4];
};

// mma is the instruction. Older GPUs do not have it, and are not asked for it.
__device__ inline void mma(float &c0, float &c1, float &c2, float &c3, const left &a, u32 b0, u32 b1) {
#ifdef TROUPE_EMULATED
	float c[4] = {c0, c1, c2, c3};
	troupe::mma(c, a.at, b0, b1);
	c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
#elif __CUDA_ARCH__ >= 800
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
		: "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
#else
	__trap();
#endif
}

// left_of makes numbers an A.
__device__ inline left left_of(const part &p) {
	return left{{bf16_pair(p.at[0][0], p.at[0][1]), bf16_pair(p.at[1][0], p.at[1][1]),
		bf16_pair(p.at[0][2], p.at[0][3]), bf16_pair(p.at[1][2], p.at[1][3])}};
}

// multiply_add adds the product of 16×16 by 16×16.
__device__ inline void multiply_add(part &sum, const left &a, const right &b) {
	mma(sum.at[0][0], sum.at[0][1], sum.at[1][0], sum.at[1][1], a, b.at[0], b.at[1]);
	mma(sum.at[0][2], sum.at[0][3], sum.at[1][2], sum.at[1][3], a, b.at[2], b.at[3]);
}

#endif
