// Random bits: those of package internal/base/rng, to the bit.
#ifndef TROUPE_RNG_CUH
#define TROUPE_RNG_CUH

#include "common.cuh"

struct random_words {
	u32 at[4];
};

// philox is the block of Philox4x32-10 (Salmon et al., SC'11) at the counter (high, low).
__device__ inline random_words philox(u32 key0, u32 key1, u64 high, u64 low) {
	u32 c0 = (u32)low, c1 = (u32)(low >> 32), c2 = (u32)high, c3 = (u32)(high >> 32);
	for (int round = 0; round < 10; round++) {
		const u64 pa = (u64)c0 * 0xD2511F53u, pb = (u64)c2 * 0xCD9E8D57u;
		c0 = (u32)(pb >> 32) ^ c1 ^ key0;
		c1 = (u32)pb;
		c2 = (u32)(pa >> 32) ^ c3 ^ key1;
		c3 = (u32)pa;
		key0 += 0x9E3779B9u;
		key1 += 0xBB67AE85u;
	}
	return random_words{{c0, c1, c2, c3}};
}

// dropout draws the masks of one operation: element i of the global batch is kept when
// its word, lane i mod 4 of the block (step, i div 4), is at least P·2³².
struct dropout {
	const u64 *counters; // the step, and the index of the tensor's first element: see variables.go
	u32 key0, key1, threshold;
	float scale; // 1/(1−P), by which the kept are multiplied
};

// mask_words are the random words of four elements from index i of the tensor on.
__device__ inline random_words mask_words(const dropout &d, u64 i) {
	const u64 step = d.counters[0], at = d.counters[1] + i;
	const int skip = (int)(at % 4);
	random_words words = philox(d.key0, d.key1, step, at / 4);
	random_words next = words, of;
	if (skip > 0) next = philox(d.key0, d.key1, step, at / 4 + 1);
	for (int j = 0; j < 4; j++) {
		// Lane skip + j of the two blocks, found without an index that only memory knows.
		of.at[j] = 0;
		for (int lane = 0; lane < 4; lane++) {
			if (skip + j == lane) of.at[j] = words.at[lane];
			if (skip + j == lane + 4) of.at[j] = next.at[lane];
		}
	}
	return of;
}

// dropout_factors are what four elements from index i of the tensor on are multiplied by.
__device__ inline void dropout_factors(float factors[4], const dropout &d, u64 i) {
	const random_words words = mask_words(d, i);
	for (int j = 0; j < 4; j++) factors[j] = words.at[j] >= d.threshold ? d.scale : 0;
}

#endif
