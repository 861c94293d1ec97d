// What a host compiler needs to compile the kernels: CUDA's words, and a block's
// threads as fibers.
//
// It is put in front of every kernel by -include. One kernel runs at a time, its
// blocks one after the other, the threads of a block as fibers of one thread of the
// system: so a kernel's shared memory can be plain static memory, and an atomic
// operation a plain one. What a real GPU leaves undefined (threads that end while
// others wait in a barrier, shuffles without all of their lanes) fails the launch.
#ifndef TROUPE_EMULATE_H
#define TROUPE_EMULATE_H

// The system's headers come first: they use words that are defined away below.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
typedef uint3 dim3;

// Set by the stand-in before it passes control to a fiber.
extern uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

// What the stand-in does for a fiber: see lib/fibers.cpp.
extern "C" {
// Waits for all threads of the block.
void troupe_barrier(void);
// Waits for the lanes of mask and returns what each of the warp's 32 gave.
const uint64_t *troupe_exchange(unsigned mask, uint64_t value);
// The same, and the last lane that comes calls a function with what all gave before any goes on.
const uint64_t *troupe_together(unsigned mask, uint64_t value, void (*last)(const uint64_t *all));
// Begins a copy to shared memory, and ends the group of those that the thread has begun since
// the last. It arrives when its thread waits until no more than so many groups are under way;
// before that, what it will be is garbage.
void troupe_copy(void *to, const void *from, unsigned bytes, unsigned there);
void troupe_copy_commit(void);
void troupe_copy_wait(unsigned groups);
// The shared memory that the launch asked for.
void *troupe_dynamic(void);
// Fails the kernel.
void troupe_refuse(const char *why);
// Makes a kernel known. run calls it with the argument that it points to.
void troupe_register(const char *file, const char *name, size_t argument, void (*run)(const void *argument));
}

// KERNEL(name) begins a kernel, as in common.cuh, and makes it known.
#define KERNEL(name)                                                                                              \
    static void name(const name##_args a);                                                                        \
    static const bool name##_known = (troupe_register(__FILE__, #name, sizeof(name##_args),                       \
                                                      [](const void *a) { name(*(const name##_args *)a); }),      \
                                      true);                                                                      \
    static void name(const name##_args a)

// ---- barriers, and what a warp's lanes tell each other

inline void __syncthreads() { troupe_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { troupe_exchange(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace troupe {

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

template <class T> uint64_t bits(T v) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t b = 0;
    memcpy(&b, &v, sizeof v);
    return b;
}

template <class T> T value(uint64_t b) {
    T v;
    memcpy(&v, &b, sizeof v);
    return v;
}

// One shuffle: lane from of the segment of width lanes, or the own lane where that
// lies outside of it.
template <class T> T shuffle(unsigned mask, T v, int from, int width) {
    int self = (int)lane(), first = self & ~(width - 1);
    const uint64_t *all = troupe_exchange(mask, bits(v));
    return value<T>(all[from < first || from >= first + width ? self : from]);
}

} // namespace troupe

template <class T> T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    return troupe::shuffle(mask, v, ((int)troupe::lane() & ~(width - 1)) + (source & (width - 1)), width);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int flip, int width = 32) {
    return troupe::shuffle(mask, v, (int)troupe::lane() ^ flip, width);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    return troupe::shuffle(mask, v, (int)(troupe::lane() + by), width);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    return troupe::shuffle(mask, v, (int)troupe::lane() - (int)by, width);
}
inline unsigned __ballot_sync(unsigned mask, int holds) {
    const uint64_t *all = troupe_exchange(mask, holds != 0);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && all[i]) votes |= 1u << i;
    return votes;
}
inline int __any_sync(unsigned mask, int holds) { return __ballot_sync(mask, holds) != 0; }
inline int __all_sync(unsigned mask, int holds) { return __ballot_sync(mask, holds) == mask; }

// ---- tensor cores

namespace troupe {

// bf16 is v as a bfloat16, to the nearest and ties to even; a NaN stays one.
inline unsigned bf16(float v) {
    unsigned b = value<unsigned>(bits(v));
    return v != v ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// The two of a word.
inline void unpack(float to[2], uint64_t word) {
    to[0] = value<float>((word & 0xffff) << 16);
    to[1] = value<float>(word & 0xffff0000);
}

// What a lane gives to mma and to ldmatrix, and where it wants what it gets.
struct Multiplied {
    float *c;
    const unsigned *a;
    unsigned b0, b1;
};
struct Loaded {
    unsigned *to;
    const void *row;
};

// multiply_all is mma.m16n8k16 for a warp: see mma.cuh for what of each matrix a lane has. An
// element's products are added in ascending order.
inline void multiply_all(const uint64_t *lanes) {
    typedef float row __attribute__((vector_size(32)));
    const int M = 16, N = 8, K = 16;
    float a[M][K];
    row b[K], c[M];
    for (int lane = 0; lane < 32; lane++) {
        const Multiplied &of = *(const Multiplied *)lanes[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) unpack(&a[g + 8 * (i % 2)][2 * t + 8 * (i / 2)], of.a[i]);
        for (int i = 0; i < 4; i++) c[g + 8 * (i / 2)][2 * t + i % 2] = of.c[i];
        float column[4];
        unpack(column, of.b0);
        unpack(column + 2, of.b1);
        for (int i = 0; i < 4; i++) b[2 * t + i % 2 + 8 * (i / 2)][g] = column[i];
    }
    for (int i = 0; i < M; i++) {
        row sum = c[i];
        for (int k = 0; k < K; k++) sum += a[i][k] * b[k];
        c[i] = sum;
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) ((const Multiplied *)lanes[lane])->c[i] = c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
}

inline void mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1) {
    const Multiplied mine = {c, a, b0, b1};
    troupe_together(0xffffffffu, (uintptr_t)&mine, multiply_all);
}

// load_all is ldmatrix.x4 for a warp, of four matrices of 8×8 elements of 2 bytes: lane 8·i + r has the
// address of row r of matrix i. All rows are read before any lane goes on.
template <bool transposed> inline void load_all(const uint64_t *lanes) {
    unsigned short m[32][8];
    for (int lane = 0; lane < 32; lane++) memcpy(m[lane], ((const Loaded *)lanes[lane])->row, sizeof m[lane]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int g = lane / 4, first = lane % 4 * 2;
            const unsigned lower = transposed ? m[8 * i + first][g] : m[8 * i + g][first];
            const unsigned upper = transposed ? m[8 * i + first + 1][g] : m[8 * i + g][first + 1];
            ((const Loaded *)lanes[lane])->to[i] = lower | upper << 16;
        }
}

inline void ldmatrix(unsigned to[4], const void *row, bool transposed) {
    if ((uintptr_t)row % 16) troupe_refuse("loads a row of a matrix that is not at a multiple of 16 bytes");
    const Loaded mine = {to, row};
    troupe_together(0xffffffffu, (uintptr_t)&mine, transposed ? load_all<true> : load_all<false>);
}

} // namespace troupe

// ---- atomic operations: plain, since one fiber runs at a time

template <class T> T atomicAdd(T *p, T v) { T old = *p; *p = old + v; return old; }
template <class T> T atomicMax(T *p, T v) { T old = *p; if (v > old) *p = v; return old; }
template <class T> T atomicMin(T *p, T v) { T old = *p; if (v < old) *p = v; return old; }
template <class T> T atomicOr(T *p, T v) { T old = *p; *p = old | v; return old; }
template <class T> T atomicExch(T *p, T v) { T old = *p; *p = v; return old; }
template <class T> T atomicCAS(T *p, T is, T v) { T old = *p; if (old == is) *p = v; return old; }

// ---- vectors, with the alignment that a GPU insists on

#define TROUPE_VECTORS(T, name)                                                                                   \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                            \
    struct alignas(16) name##4 { T x, y, z, w; };                                                                 \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                    \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TROUPE_VECTORS(unsigned, uint)
TROUPE_VECTORS(float, float)
TROUPE_VECTORS(int, int)
TROUPE_VECTORS(double, double)
#undef TROUPE_VECTORS

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }

// ---- numbers. Contraction is off, so that products and sums round as they are written.

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline double rsqrt(double a) { return 1 / sqrt(a); }

// The sine and the cosine of pi·a.
inline void sincospi(double a, double *sine, double *cosine) {
    const double quarters = rint(2 * a), rest = (a - quarters / 2) * 3.14159265358979323846;
    const double s = sin(rest), c = cos(rest);
    const int turn = (int)fmod(quarters, 4) & 3;
    *sine = turn == 0 ? s : turn == 1 ? c : turn == 2 ? -s : -c;
    *cosine = turn == 0 ? c : turn == 1 ? -s : turn == 2 ? -c : s;
}

inline unsigned __float_as_uint(float a) { return troupe::value<unsigned>(troupe::bits(a)); }
inline float __uint_as_float(unsigned a) { return troupe::value<float>(troupe::bits(a)); }
inline int __float_as_int(float a) { return troupe::value<int>(troupe::bits(a)); }
inline float __int_as_float(int a) { return troupe::value<float>(troupe::bits(a)); }
inline long long __double_as_longlong(double a) { return troupe::value<long long>(troupe::bits(a)); }
inline double __longlong_as_double(long long a) { return troupe::value<double>(troupe::bits(a)); }
inline float __uint2float_rn(unsigned a) { return (float)a; }
inline float __int2float_rn(int a) { return (float)a; }
inline float __double2float_rn(double a) { return (float)a; }

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz((unsigned)a); }
inline int __ffs(int a) { return __builtin_ffs(a); }

// min and max for the pairs of types that CUDA has, and no others.
#define TROUPE_MIN_MAX(A, B, R)                                                                                   \
    inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                                                  \
    inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
TROUPE_MIN_MAX(int, int, int)
TROUPE_MIN_MAX(unsigned, unsigned, unsigned)
TROUPE_MIN_MAX(int, unsigned, unsigned)
TROUPE_MIN_MAX(unsigned, int, unsigned)
TROUPE_MIN_MAX(long, long, long)
TROUPE_MIN_MAX(unsigned long, unsigned long, unsigned long)
TROUPE_MIN_MAX(long long, long long, long long)
TROUPE_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
TROUPE_MIN_MAX(long long, unsigned long long, unsigned long long)
TROUPE_MIN_MAX(unsigned long long, long long, unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
#undef TROUPE_MIN_MAX

// ---- the clock

// The device's clock, which kernels read under this name.
inline unsigned long long nanoseconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

#endif
