// What moves or makes data without computing: fills, copies, and a wait.
#include "four.cuh"

struct fill4_args {
	u32 *to;
	i64 n;
	u32 bits, pad;
};

KERNEL(fill4) {
	for (i64 i = GRID_INDEX; i < a.n; i += GRID_SIZE) a.to[i] = a.bits;
}

struct fill2_args {
	bf16 *to;
	i64 n;
	u32 bits, pad;
};

KERNEL(fill2) {
	for (i64 i = GRID_INDEX; i < a.n; i += GRID_SIZE) a.to[i] = (bf16)a.bits;
}

struct fill8_args {
	u64 *to;
	i64 n;
	u64 bits;
};

KERNEL(fill8) {
	for (i64 i = GRID_INDEX; i < a.n; i += GRID_SIZE) a.to[i] = a.bits;
}

struct copy_args {
	float *to;
	const float *from;
	i64 rows, cols, to_stride, from_stride;
	u32 aligned, pad;
};

// copy takes elements of 4 bytes, whatever they are: nothing looks at them. Those of 8 come
// as twice as many.
KERNEL(copy) {
	for (i64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
		EACH_FOUR(j, a.cols) {
			const i64 left = a.cols - j;
			store4(a.to + row * a.to_stride + j, load4(a.from + row * a.from_stride + j, left, a.aligned), left, a.aligned);
		}
	}
}

struct copy2_args {
	bf16 *to;
	const bf16 *from;
	i64 rows, cols, to_stride, from_stride;
	u32 aligned, pad;
};

// copy2 takes elements of 2 bytes.
KERNEL(copy2) {
	for (i64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
		EACH_FOUR(j, a.cols) {
			bf16 *const to = a.to + row * a.to_stride + j;
			const bf16 *const from = a.from + row * a.from_stride + j;
			const i64 left = a.cols - j;
			if (a.aligned && left >= 4) {
				*(bf16_quad *)to = *(const bf16_quad *)from;
				continue;
			}
			for (int k = 0; k < 4 && k < left; k++) to[k] = from[k];
		}
	}
}

struct spin_args {
	u64 nanoseconds;
};

#ifndef TROUPE_EMULATED
// nanoseconds is the device's clock; the emulation has its own.
__device__ inline u64 nanoseconds() {
	u64 now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}
#endif

// spin keeps the multiprocessor of its one thread busy.
KERNEL(spin) {
	for (const u64 start = nanoseconds(); nanoseconds() - start < a.nanoseconds;) {
	}
}
