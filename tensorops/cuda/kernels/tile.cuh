// Kernels of 256 threads, 16 × 16, that keep a tile of their result in registers.
#ifndef TROUPE_TILE_CUH
#define TROUPE_TILE_CUH

#include "quad.cuh"

#define THREADS 256

// TILED_KERNEL(name, blocks) is KERNEL(name) with so many registers that a multiprocessor
// holds that many blocks: of two, one computes while the other waits at a barrier or for
// memory. What a thread has of its tile may be too much for that: `make check-cuda` finds
// what does not fit in registers.
//
// UNROLL_FOUR is for long loops of products, where more would only be more code.
#ifdef TROUPE_EMULATED
#define TILED_KERNEL(name, blocks) KERNEL(name)
#define UNROLL_FOUR
#else
#define TILED_KERNEL(name, blocks) extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(const name##_args a)
#define UNROLL_FOUR _Pragma("unroll 4")
#endif

#endif
