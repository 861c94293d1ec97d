// Sums that blocks add to in turns, so that their order and with it their bits are always the
// same. Whose turn it is, a counter in memory says, which the blocks raise.
#ifndef TROUPE_TURNS_CUH
#define TROUPE_TURNS_CUH

#include "quad.cuh"

// wait_for_turn waits, in one thread, until a counter that other blocks raise has a value.
__device__ inline void wait_for_turn(const u32 *turn, u32 value) {
#ifdef TROUPE_EMULATED
	if (*turn != value) troupe_refuse("waits for a block that has not come to it");
#else
	u32 is;
	do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is) : "l"(turn) : "memory");
	while (is != value);
#endif
}

// give_turn lets the next block see what all threads of this one wrote before a barrier.
__device__ inline void give_turn(u32 *turn, u32 value) {
#ifdef TROUPE_EMULATED
	*turn = value;
#else
	asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(value) : "memory");
#endif
}

// read_sum and write_sum pass by the cache that a multiprocessor has for itself.
__device__ inline quad read_sum(const quad *p) {
#ifdef TROUPE_EMULATED
	return *p;
#else
	quad v;
	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
	return v;
#endif
}

__device__ inline void write_sum(quad *p, const quad &v) {
#ifdef TROUPE_EMULATED
	*p = v;
#else
	asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
#endif
}

#endif
