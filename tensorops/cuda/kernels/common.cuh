// What every kernel begins with.
//
// The same source is compiled by NVRTC for a GPU and, with emulate.h in front, by a host
// compiler, where tests run it without one. So it keeps to what both know: blocks of
// threads along x, static shared memory, __syncthreads, shuffles within a warp.
#ifndef TROUPE_COMMON_CUH
#define TROUPE_COMMON_CUH

#ifndef TROUPE_EMULATED
// KERNEL(name) begins a kernel. Its argument is the struct name_args, as a.
#define KERNEL(name) extern "C" __global__ void name(const name##_args a)

// BOUNDED_KERNEL(name, threads, blocks) is KERNEL(name) for blocks of no more threads, with so few registers
// that a multiprocessor holds that many blocks.
#define BOUNDED_KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name(const name##_args a)

// UNROLL is for loops over an array that a thread has: only unrolled does it stay in registers.
#define UNROLL _Pragma("unroll")
#else
#define BOUNDED_KERNEL(name, threads, blocks) KERNEL(name)
#define UNROLL
#endif

// again(x) is x, without the compiler knowing that it is: what follows from it is computed where it is needed,
// and takes no register until then. That is for what is cheap, next to a loop that needs all registers.
__device__ inline int again(int x) {
#ifndef TROUPE_EMULATED
	asm volatile("" : "+r"(x));
#endif
	return x;
}

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

// The index of this thread in its grid, and the grid's size: a loop from one in steps of
// the other covers any number of elements.
#define GRID_INDEX ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define GRID_SIZE ((i64)gridDim.x * blockDim.x)

#endif
