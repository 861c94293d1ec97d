// Weights in 8 and 4 bits, to float32 or bfloat16 and back. Package quant has the formats.
#include "eight.cuh"

#define QUANT_BLOCK 64 // numbers with one scale: launch_quant.go knows it as quant.Block

typedef unsigned char byte;

// The values of NF4, and what lies halfway between them.
__device__ const float nf4_values[16] = {
	-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
	-0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
	0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
	0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

__device__ inline float nf4_bound(int i) { return (float)(((double)nf4_values[i] + (double)nf4_values[i + 1]) / 2); }

struct quant_decode_args {
	float *to;
	const byte *from; // the first row
	i64 rows, cols, to_stride, row_bytes;
	i64 first; // column of each row
	i64 scales; // where they are in a row
	u32 nf4, half, aligned, pad;
};

// quant_decode widens columns of rows. Eight neighbours are a thread's.
KERNEL(quant_decode) {
	for (i64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
		const byte *const codes = a.from + row * a.row_bytes;
		const float *const scales = (const float *)(codes + a.scales);
		EACH_EIGHT(j, a.cols) {
			const i64 left = a.cols - j;
			eight f;
			EACH_OF_EIGHT(k) {
				f.at[k] = 0;
				if (k >= left) continue;
				const i64 col = a.first + j + k;
				float v;
				if (a.nf4) {
					const u32 both = codes[col / 2];
					v = nf4_values[col % 2 ? both & 15 : both >> 4];
				} else {
					v = (float)(signed char)codes[col];
				}
				f.at[k] = v * scales[col / QUANT_BLOCK];
			}
			store8(a.to, row * a.to_stride + j, f, left, a.aligned, a.half);
		}
	}
}

struct quant_encode_args {
	byte *to;
	const float *from;
	i64 rows, cols, from_stride, row_bytes;
	i64 scales; // where they are in a row
	u32 nf4, pad;
};

// nf4_code is the index of the nearest value; of two as near, the lower one's.
__device__ inline u32 nf4_code(float v) {
	u32 code = 0;
	for (int i = 0; i < 15; i++) code += v > nf4_bound(i) ? 1 : 0;
	return code;
}

// quant_encode stores rows. A block is a thread's: weights are stored once.
KERNEL(quant_encode) {
	const i64 blocks = (a.cols + QUANT_BLOCK - 1) / QUANT_BLOCK;
	for (i64 i = GRID_INDEX; i < a.rows * blocks; i += GRID_SIZE) {
		const i64 row = i / blocks, block = i % blocks;
		const float *const x = a.from + row * a.from_stride + block * QUANT_BLOCK;
		const i64 rest = a.cols - block * QUANT_BLOCK;
		const int n = rest < QUANT_BLOCK ? (int)rest : QUANT_BLOCK;
		byte *const codes = a.to + row * a.row_bytes;
		float scale = 0;
		bool damaged = false;
		for (int k = 0; k < n; k++) {
			const float v = x[k];
			damaged = damaged || v - v != 0;
			scale = fmaxf(scale, fabsf(v));
		}
		if (damaged) scale = __uint_as_float(0x7fc00000);
		if (!a.nf4) scale = scale / 127.0f;
		((float *)(codes + a.scales))[block] = scale;
		const bool some = scale > 0;
		if (a.nf4) {
			byte *const to = codes + block * (QUANT_BLOCK / 2);
			for (int k = 0; k < QUANT_BLOCK; k += 2) {
				const u32 upper = some && k < n ? nf4_code(x[k] / scale) : 7, lower = some && k + 1 < n ? nf4_code(x[k + 1] / scale) : 7;
				to[k / 2] = (byte)(upper << 4 | lower);
			}
		} else {
			byte *const to = codes + block * QUANT_BLOCK;
			for (int k = 0; k < QUANT_BLOCK; k++) {
				const float q = some && k < n ? fminf(fmaxf(rintf(x[k] / scale), -127.0f), 127.0f) : 0.0f;
				to[k] = (byte)(signed char)(int)q;
			}
		}
	}
}
