// Whether emulate.h multiplies as the tensor cores' instruction does. The kernels rely on
// where each element of a matrix lies, and would agree with an emulation that has it wrong:
// so this goes by the formulas that the PTX ISA gives for the elements of a fragment.
#include "../emulate.h"

#include "fibers.h"

namespace {

const int M = 16, N = 8, K = 16;

struct Matrices {
    unsigned short a[M][K], b[K][N]; // bfloat16
    float c[M][N];
};

struct mma_check_args {
    Matrices *m;
};

// Section "Matrix Fragments for mma.m16n8k16 with floating point type": fragments a0 to a7,
// b0 to b3 and c0 to c3, two of a and of b to a register, the first in its lower half.
KERNEL(mma_check) {
    Matrices &m = *a.m;
    int laneid = threadIdx.x, group = laneid >> 2, in_group = laneid % 4;
    unsigned ra[4] = {}, rb[2] = {};
    for (int i = 0; i < 8; i++) {
        int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
        int col = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
        ra[i / 2] |= (unsigned)m.a[row][col] << (16 * (i % 2));
    }
    for (int i = 0; i < 4; i++) {
        int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
        rb[i / 2] |= (unsigned)m.b[row][group] << (16 * (i % 2));
    }
    float c[4];
    for (int i = 0; i < 4; i++) c[i] = m.c[i < 2 ? group : group + 8][in_group * 2 + (i & 1)];
    troupe::mma(c, ra, rb[0], rb[1]);
    for (int i = 0; i < 4; i++) m.c[i < 2 ? group : group + 8][in_group * 2 + (i & 1)] = c[i];
}

float widened(unsigned short v) { return troupe::value<float>((uint64_t)v << 16); }

} // namespace

// Multiplies random small integers, whose products and sums are exact, and returns how many
// elements are wrong, or −1 if the kernel failed.
extern "C" int troupe_standin_check_mma(void) {
    unsigned state = 1;
    auto drawn = [&] { return (float)((int)((state = state * 1664525u + 1013904223u) >> 24) - 128); };
    int wrong = 0;
    for (int round = 0; round < 10; round++) {
        Matrices m;
        for (auto &row : m.a) for (auto &v : row) v = (unsigned short)troupe::bf16(drawn());
        for (auto &row : m.b) for (auto &v : row) v = (unsigned short)troupe::bf16(drawn());
        for (auto &row : m.c) for (auto &v : row) v = drawn();
        float want[M][N];
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                want[i][j] = m.c[i][j];
                for (int k = 0; k < K; k++) want[i][j] += widened(m.a[i][k]) * widened(m.b[k][j]);
            }
        mma_check_args args = {&m};
        const troupe::Kernel *k = troupe::find_kernel("mma.cpp", "mma_check");
        if (!k || !troupe::run_kernel(*k, {1, 1, 1}, {32, 1, 1}, 0, &args).empty()) return -1;
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) wrong += m.c[i][j] != want[i][j];
    }
    // Rounding: ties go to even, and a NaN stays one.
    const struct { unsigned is, becomes; } roundings[] = {
        {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0xbf807fff, 0xbf80},
        {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0}, {0x80000000, 0x8000},
    };
    for (auto &r : roundings) wrong += troupe::bf16(__uint_as_float(r.is)) != r.becomes;
    return wrong;
}
