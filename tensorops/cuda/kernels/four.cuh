// Four neighbouring elements for a thread, as the elementwise and the row kernels take
// them: at once where addresses allow, one after the other elsewhere, with one path for
// both and for what is left at the end.
#ifndef TROUPE_FOUR_CUH
#define TROUPE_FOUR_CUH

#include "quad.cuh"

struct four {
	float at[4];
};

// load4 reads the four from p on, of which left exist, and puts rest for the others.
template <class T> __device__ inline four load4(const T *p, i64 left, bool aligned, float rest = 0) {
	const quad q = load_quad(p, left, aligned);
	four f = {{q.x, q.y, q.z, q.w}};
	for (int k = 0; k < 4; k++) {
		if (k >= left) f.at[k] = rest;
	}
	return f;
}

// store4 writes those of the four that exist.
template <class T> __device__ inline void store4(T *p, const four &f, i64 left, bool aligned) {
	store_quad(p, quad{f.at[0], f.at[1], f.at[2], f.at[3]}, left, aligned);
}

// FORMS(name, function) are the two forms of a kernel whose operands may be float32 or bfloat16:
// name is for float32 in all of them, and name_mixed looks at a bit of each in halves, the first
// is 1: set, the operand is bfloat16, though its address is said to be of floats.
#define FORMS(name, function) \
	KERNEL(name) { function<false>(a); } \
	typedef name##_args name##_mixed_args; \
	KERNEL(name##_mixed) { function<true>(a); }

template <bool mixed> __device__ inline four load4(const float *p, i64 at, i64 left, bool aligned, u32 half, float rest = 0) {
	if (mixed && half) return load4((const bf16 *)p + at, left, aligned, rest);
	return load4(p + at, left, aligned, rest);
}

template <bool mixed> __device__ inline void store4(float *p, i64 at, const four &f, i64 left, bool aligned, u32 half) {
	if (mixed && half) store4((bf16 *)p + at, f, left, aligned);
	else store4(p + at, f, left, aligned);
}

// load_one reads an element.
template <bool mixed> __device__ inline float load_one(const float *p, i64 at, u32 half) {
	return mixed && half ? bf16_float(((const bf16 *)p)[at]) : p[at];
}

// store_one writes an element.
template <bool mixed> __device__ inline void store_one(float *p, i64 at, float v, u32 half) {
	if (mixed && half) ((bf16 *)p)[at] = (bf16)bf16_bits(v);
	else p[at] = v;
}

// EACH_FOUR goes through n elements by the threads of a grid, EACH_FOUR_OF_ROW by those
// of a block: i is the first of four.
#define EACH_FOUR(i, n) for (i64 i = 4 * GRID_INDEX; i < (n); i += 4 * GRID_SIZE)
#define EACH_FOUR_OF_ROW(i, n) for (i64 i = 4 * (i64)threadIdx.x; i < (n); i += 4 * (i64)blockDim.x)

#endif
