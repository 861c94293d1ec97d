// Whether emulate.h loads matrices and copies beside the computing as a GPU does: by what the
// PTX ISA says of ldmatrix and of cp.async, and what kernels that forget to wait must not get
// away with.
#include "../emulate.h"

#include "fibers.h"

#include <string>

namespace {

// ---- ldmatrix

struct Matrices {
    unsigned short m[4][8][8];
    unsigned got[2][32][4]; // as they are, transposed
};

struct ldmatrix_check_args {
    Matrices *m;
};

// Lane 8·i + r gives the address of row r of matrix i, and changes the row when it has its own.
KERNEL(ldmatrix_check) {
    __shared__ uint4 room[4][8];
    const int laneid = threadIdx.x;
    for (int transposed = 0; transposed < 2; transposed++) {
        void *row = &room[laneid >> 3][laneid & 7];
        memcpy(row, a.m->m[laneid >> 3][laneid & 7], 16);
        __syncthreads();
        troupe::ldmatrix(a.m->got[transposed][laneid], row, transposed != 0);
        memset(row, 0xab, 16);
        __syncthreads();
    }
}

// ---- cp.async

const int threads = 64;

enum Mode { waits, forgets_wait, forgets_barrier, waits_for_older, never_waits, between_words };

struct copies_check_args {
    const unsigned *from; // two pieces of 16 bytes for each thread
    unsigned *to;
    int mode;
};

// Every thread copies a piece to each of two rooms and reads words of the next thread's.
KERNEL(copies_check) {
    __shared__ uint4 rooms[2][threads];
    unsigned *const room[2] = {&rooms[0][0].x, &rooms[1][0].x};
    const int t = threadIdx.x, next = (t + 1) % threads;
    troupe_copy(room[0] + 4 * t, (const char *)(a.from + 4 * t) + (a.mode == between_words ? 2 : 0), 16, 16);
    troupe_copy_commit();
    troupe_copy(room[1] + 4 * t, a.from + 4 * (threads + t), 16, 12);
    troupe_copy_commit();
    if (a.mode == never_waits) return;
    if (a.mode != forgets_wait) troupe_copy_wait(a.mode == waits_for_older ? 1 : 0);
    if (a.mode != forgets_barrier) __syncthreads();
    for (int i = 0; i < 2; i++)
        for (int word = 0; word < 4; word++) a.to[4 * (threads * i + t) + word] = room[i][4 * next + word];
    __syncthreads();
    troupe_copy_wait(0);
}

std::string run(const char *name, unsigned size, const void *args) {
    const troupe::Kernel *k = troupe::find_kernel("load.cpp", name);
    return k ? troupe::run_kernel(*k, {1, 1, 1}, {size, 1, 1}, 0, args) : "no such kernel";
}

// copied runs a mode with fresh numbers, and counts the wrong words of both rooms.
std::string copied(Mode mode, int wrong[2]) {
    static unsigned state = 7;
    static unsigned from[8 * threads], to[8 * threads];
    for (unsigned &v : from) v = (state = state * 1664525u + 1013904223u) | 1; // never 0
    copies_check_args args = {from, to, mode};
    std::string failure = run("copies_check", threads, &args);
    for (int i = 0; i < 2; i++) {
        wrong[i] = 0;
        for (int t = 0; t < threads; t++)
            for (int word = 0; word < 4; word++) {
                const unsigned is = to[4 * (threads * i + t) + word], piece = from[4 * (threads * i + (t + 1) % threads) + word];
                wrong[i] += is != (i == 1 && word == 3 ? 0 : piece);
            }
    }
    return failure;
}

} // namespace

// Loads random matrices and returns how many words are wrong, or −1 if the kernel failed.
extern "C" int troupe_standin_check_ldmatrix(void) {
    unsigned state = 1;
    int wrong = 0;
    for (int round = 0; round < 4; round++) {
        Matrices m;
        for (auto &matrix : m.m)
            for (auto &row : matrix)
                for (auto &v : row) v = (unsigned short)((state = state * 1664525u + 1013904223u) >> 16);
        ldmatrix_check_args args = {&m};
        if (!run("ldmatrix_check", 32, &args).empty()) return -1;
        // Section "Warp-level matrix load instruction": thread T has the elements 2·(T mod 4) and
        // the next of row T div 4; with .trans the matrix is loaded in column-major format.
        for (int i = 0; i < 4; i++)
            for (int T = 0; T < 32; T++) {
                const unsigned row = T / 4, first = 2 * (T % 4);
                wrong += m.got[0][T][i] != (m.m[i][row][first] | (unsigned)m.m[i][row][first + 1] << 16);
                wrong += m.got[1][T][i] != (m.m[i][first][row] | (unsigned)m.m[i][first + 1][row] << 16);
            }
    }
    return wrong;
}

// Returns how much is not as it should be of copies that are waited for, and of those that are not.
extern "C" int troupe_standin_check_copies(void) {
    int bad = 0, wrong[2];
    for (int order = 0; order < 2; order++) { // of the threads
        bad += !copied(waits, wrong).empty() || wrong[0] || wrong[1];
        bad += !copied(waits, wrong).empty() || wrong[0] || wrong[1];
        bad += !copied(forgets_wait, wrong).empty() || wrong[0] != 4 * threads || wrong[1] != 4 * threads;
        bad += !copied(forgets_barrier, wrong).empty() || !wrong[0] || !wrong[1];
        bad += !copied(waits_for_older, wrong).empty() || wrong[0] || wrong[1] != 4 * threads;
        bad += copied(never_waits, wrong).find("copy under way") == std::string::npos;
        bad += copied(between_words, wrong).find("multiple of its bytes") == std::string::npos;
    }
    return bad;
}
