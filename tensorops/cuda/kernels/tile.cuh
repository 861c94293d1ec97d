// Kernels of 256 threads, 16 × 16, that keep a tile of their result in registers.
#ifndef TROUPE_TILE_CUH
#define TROUPE_TILE_CUH

#include "quad.cuh"

#define THREADS 256

// TILED_KERNEL(name) is KERNEL(name) with so many registers that a multiprocessor holds two
// blocks: while one waits at a barrier or for memory, the other computes.
//
// UNROLL is for loops over what a thread has of a tile: only unrolled do arrays stay in
// registers. UNROLL_FOUR is for long loops of products, where more would only be more code.
#ifdef TROUPE_EMULATED
#define TILED_KERNEL(name) KERNEL(name)
#define UNROLL
#define UNROLL_FOUR
#else
#define TILED_KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS, 2) name(const name##_args a)
#define UNROLL _Pragma("unroll")
#define UNROLL_FOUR _Pragma("unroll 4")
#endif

#endif
