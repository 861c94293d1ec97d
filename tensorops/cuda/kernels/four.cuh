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
__device__ inline four load4(const float *p, i64 left, bool aligned, float rest = 0) {
	const quad q = load_quad(p, left, aligned);
	four f = {{q.x, q.y, q.z, q.w}};
	for (int k = 0; k < 4; k++) {
		if (k >= left) f.at[k] = rest;
	}
	return f;
}

// store4 writes those of the four that exist.
__device__ inline void store4(float *p, const four &f, i64 left, bool aligned) {
	store_quad(p, quad{f.at[0], f.at[1], f.at[2], f.at[3]}, left, aligned);
}

// EACH_FOUR goes through n elements by the threads of a grid, EACH_FOUR_OF_ROW by those
// of a block: i is the first of four.
#define EACH_FOUR(i, n) for (i64 i = 4 * GRID_INDEX; i < (n); i += 4 * GRID_SIZE)
#define EACH_FOUR_OF_ROW(i, n) for (i64 i = 4 * (i64)threadIdx.x; i < (n); i += 4 * (i64)blockDim.x)

#endif
