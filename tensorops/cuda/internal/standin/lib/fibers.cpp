// Kernels on the host: each thread of a block is a fiber, a stack of its own that the
// calling thread passes to and comes back from. A fiber runs until it waits for others
// or ends, and passes to the next of its warp; so a block costs one switch for each thread and
// barrier, and a kernel that would hang on a GPU is one in which no fiber can go on.
#include "fibers.h"
#include "watch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
uint3 threadIdx, blockIdx, blockDim, gridDim; // as emulate.h declares them

// ---- the switch from one stack to another

#if defined(__x86_64__) || defined(__aarch64__)

// troupe_switch(&from, to) keeps the registers that a call must keep on the stack, and
// goes on from another stack that was left in the same way.
extern "C" void troupe_switch(void **from, void *to);

#if defined(__x86_64__)
asm(R"(
    .text
    .globl troupe_switch
    .hidden troupe_switch
    .type troupe_switch, @function
troupe_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size troupe_switch, .-troupe_switch
)");
static const size_t frame = 8; // words: registers, the address to go on from, and one as if called from there
static const size_t entry_word = 6;
#else
asm(R"(
    .text
    .globl troupe_switch
    .hidden troupe_switch
    .type troupe_switch, %function
troupe_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size troupe_switch, .-troupe_switch
)");
static const size_t frame = 20;
static const size_t entry_word = 11; // x30
#endif

namespace {
struct Stack {
    void *at = nullptr; // where it was left

    void begin(char *memory, size_t bytes, void (*entry)()) {
        uint64_t *top = (uint64_t *)(memory + bytes) - frame; // sixteen bytes aligned, as calls want it
        for (size_t i = 0; i < frame; i++) top[i] = 0;
        top[entry_word] = (uint64_t)entry;
        at = top;
    }
    void pass_to(Stack &to) { troupe_switch(&at, to.at); }
};
} // namespace

#else // other processors: slower, but theirs

#include <ucontext.h>
namespace {
struct Stack {
    ucontext_t context;

    void begin(char *memory, size_t bytes, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = memory;
        context.uc_stack.ss_size = bytes;
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }
    void pass_to(Stack &to) { swapcontext(&context, &to.context); }
};
} // namespace

#endif

// ---- blocks

namespace troupe {
namespace {

const unsigned max_threads = 1024; // in a block, as CUDA has it
// The odd part keeps the tops of the stacks out of each other's cache lines.
const size_t stack_bytes = (64 << 10) + 192;

const unsigned char untouched = 0xff; // NaN
const size_t guard = 4096;            // bytes behind dynamic shared memory

enum State { ready, in_barrier, in_exchange, ended };

// Copy is one to shared memory that is under way.
struct Copy {
    char *to;
    const char *from;
    unsigned bytes, there; // of the source the first are read, the others are 0
    unsigned group;        // of its thread's, counted from 0
};

struct Fiber {
    Stack stack;
    State state;
    uint3 index;
    unsigned exchanges; // so far
    std::vector<Copy> copies;
    unsigned groups; // ended so far
};

// Warp is what the 32 lanes tell each other. Two rows of values take turns: nobody can
// be two exchanges ahead of a lane that has yet to read the first.
struct Warp {
    uint64_t values[2][32];
    unsigned arrived, mask;
    unsigned ready; // lanes that can go on
};

struct Block {
    Stack home; // of the thread that runs the block
    Fiber fibers[max_threads];
    Warp warps[max_threads / 32];
    unsigned threads, current;
    unsigned waiting, over; // threads in a barrier, and those that have ended
    bool backwards; // the last thread goes first
    const Kernel *kernel;
    const void *argument;
    std::string failure;
    char *stacks = nullptr;
    alignas(128) unsigned char dynamic[max_dynamic + guard];
    size_t shared; // bytes of dynamic that the launch asked for
};

Block block;
std::mutex one_kernel; // guards block, and the kernels' static memory

std::map<std::string, std::vector<Kernel>> &kernels() {
    static std::map<std::string, std::vector<Kernel>> all; // made on the first registration
    return all;
}

// begin_turn makes a thread that of the words that kernels read.
void begin_turn(unsigned i) {
    block.current = i;
    threadIdx = block.fibers[i].index;
}

// leave passes control to the next lane of the warp in its order that can go on, or back to the thread
// that runs the block.
void leave() {
    const unsigned self = block.current, lane = self % 32, ready = block.warps[self / 32].ready;
    Fiber &f = block.fibers[self];
    const unsigned later = block.backwards ? ready & ((1u << lane) - 1) : ready & (unsigned)(~0ull << (lane + 1));
    if (!later || !block.failure.empty()) {
        f.stack.pass_to(block.home);
        return;
    }
    const unsigned next = self - lane + (block.backwards ? 31 - __builtin_clz(later) : __builtin_ctz(later));
    begin_turn(next);
    f.stack.pass_to(block.fibers[next].stack);
}

// wait leaves until others make the thread ready.
void wait(State what) {
    const unsigned self = block.current;
    block.fibers[self].state = what;
    block.warps[self / 32].ready &= ~(1u << self % 32);
    leave();
    block.fibers[self].state = ready;
}

void enter() {
    block.kernel->run(block.argument);
    block.over++;
    wait(ended); // for good
}

// resume runs a fiber, and those of its warp that it passes to, until they wait or end.
void resume(unsigned i) {
    begin_turn(i);
    block.home.pass_to(block.fibers[i].stack);
}

// all_ready are the lanes that a warp has.
unsigned all_ready(unsigned warp) {
    const unsigned lanes = block.threads - 32 * warp;
    return lanes < 32 ? (1u << lanes) - 1 : ~0u;
}

std::string thread_name(unsigned i) {
    const uint3 &t = block.fibers[i].index;
    return "thread " + std::to_string(t.x) + "," + std::to_string(t.y) + "," + std::to_string(t.z) + " of block " +
           std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z);
}

// stuck says why no fiber can go on.
std::string stuck() {
    unsigned count[4] = {}, first[4] = {};
    for (unsigned i = block.threads; i-- > 0;) {
        State s = block.fibers[i].state;
        count[s]++;
        first[s] = i;
    }
    std::string why = std::to_string(count[in_barrier]) + " threads wait in __syncthreads, " +
                      std::to_string(count[in_exchange]) + " in a shuffle or vote for lanes that are not there, and " +
                      std::to_string(count[ended]) + " have ended";
    for (State s : {in_barrier, in_exchange})
        if (count[s]) return why + "; one that waits is " + thread_name(first[s]);
    return why;
}

// turn is the i-th of n in the order in which this kernel's warps and lanes go on.
unsigned turn(unsigned i, unsigned n) { return block.backwards ? n - 1 - i : i; }

// ended_well looks at what a block has left behind.
bool ended_well() {
    for (unsigned i = 0; i < block.threads; i++)
        if (!block.fibers[i].copies.empty()) block.failure = thread_name(i) + " ends with a copy under way";
    static const std::string none(guard, (char)untouched);
    if (memcmp(block.dynamic + block.shared, none.data(), guard) == 0) return block.failure.empty();
    for (size_t i = 0; i < guard; i++)
        if (block.dynamic[block.shared + i] != untouched)
            block.failure = "byte " + std::to_string(block.shared + i) + " of " + std::to_string(block.shared) + " of shared memory is written";
    return block.failure.empty();
}

// run_block runs one block to its end; false if it failed.
bool run_block() {
    for (unsigned i = 0; i < block.threads; i++) {
        Fiber &f = block.fibers[i];
        f.state = ready;
        f.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        f.exchanges = 0;
        f.copies.clear();
        f.groups = 0;
        f.stack.begin(block.stacks + i * stack_bytes, stack_bytes, enter);
    }
    const unsigned warps = (block.threads + 31) / 32;
    for (unsigned w = 0; w < warps; w++) block.warps[w].arrived = 0;
    memset(block.dynamic, untouched, block.shared + guard);
    for (block.over = 0; block.over < block.threads;) {
        block.waiting = 0;
        for (unsigned w = 0; w < warps; w++) block.warps[w].ready = all_ready(w); // behind a barrier
        // A warp goes as far as it can before the next one: its exchanges are short.
        for (unsigned i = 0; i < warps; i++) {
            const unsigned w = turn(i, warps);
            while (const unsigned can = block.warps[w].ready) {
                resume(32 * w + (block.backwards ? 31 - __builtin_clz(can) : __builtin_ctz(can)));
                if (!block.failure.empty()) return false;
            }
        }
        if (block.over < block.threads && block.waiting < block.threads) {
            block.failure = stuck();
            return false;
        }
    }
    return ended_well();
}

} // namespace

const Kernel *find_kernel(const std::string &file, const std::string &name) {
    auto found = kernels().find(name);
    if (found == kernels().end()) return nullptr;
    for (const Kernel &k : found->second)
        if (k.file == file) return &k;
    return nullptr;
}

std::string file_of_kernel(const std::string &name) {
    auto found = kernels().find(name);
    return found == kernels().end() || found->second.size() != 1 ? "" : found->second[0].file;
}

std::string run_kernel(const Kernel &k, Size grid, Size size, size_t shared, const void *argument) {
    std::lock_guard<std::mutex> lock(one_kernel);
    if (!block.stacks) {
        void *m = mmap(nullptr, max_threads * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) return k.name + ": no memory for the fibers' stacks";
        block.stacks = (char *)m;
    }
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {size.x, size.y, size.z};
    block.threads = size.x * size.y * size.z;
    block.kernel = &k;
    block.argument = argument;
    block.shared = shared;
    block.failure.clear();
    // Every other kernel runs backwards, its blocks too. So what one thread or block writes and
    // another reads with no barrier in between comes too late in one of the orders, and differs
    // from run to run.
    block.backwards = !block.backwards;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {turn(x, grid.x), turn(y, grid.y), turn(z, grid.z)};
                if (!run_block()) return k.name + ": " + block.failure;
            }
    return "";
}

} // namespace troupe

using namespace troupe;

extern "C" void troupe_barrier(void) {
    block.waiting++;
    wait(in_barrier);
}

extern "C" const uint64_t *troupe_together(unsigned mask, uint64_t value, void (*last)(const uint64_t *all)) {
    unsigned self = block.current, lane = self % 32;
    Fiber &f = block.fibers[self];
    Warp &w = block.warps[self / 32];
    if (!(mask >> lane & 1) || (w.arrived && w.mask != mask)) {
        block.failure = thread_name(self) + " gives a shuffle or vote a mask that lacks its lane or differs from the other lanes'";
        leave();
    }
    uint64_t *row = w.values[f.exchanges++ % 2];
    row[lane] = value;
    w.mask = mask;
    w.arrived |= 1u << lane;
    if (w.arrived != mask) {
        wait(in_exchange);
        return row;
    }
    w.arrived = 0;
    w.ready |= mask;
    if (last) last(row);
    return row;
}

extern "C" const uint64_t *troupe_exchange(unsigned mask, uint64_t value) { return troupe_together(mask, value, nullptr); }

extern "C" void troupe_refuse(const char *why) {
    block.failure = thread_name(block.current) + " " + why;
    leave();
}

extern "C" void *troupe_dynamic(void) { return block.dynamic; }

extern "C" void troupe_copy(void *to, const void *from, unsigned bytes, unsigned there) {
    if ((bytes != 4 && bytes != 8 && bytes != 16) || there > bytes) troupe_refuse("begins a copy of so many bytes as there is none of");
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes) troupe_refuse("begins a copy from or to no multiple of its bytes");
    memset(to, untouched, bytes); // it may arrive at any time: what was there is gone
    Fiber &f = block.fibers[block.current];
    f.copies.push_back({(char *)to, (const char *)from, bytes, there, f.groups});
}

extern "C" void troupe_copy_commit(void) { block.fibers[block.current].groups++; }

extern "C" void troupe_copy_wait(unsigned groups) {
    Fiber &f = block.fibers[block.current];
    std::vector<Copy> later;
    for (const Copy &c : f.copies) {
        if (c.group + groups >= f.groups) {
            later.push_back(c);
            continue;
        }
        troupe::watched_load(c.from, c.there);
        memcpy(c.to, c.from, c.there);
        memset(c.to + c.there, 0, c.bytes - c.there);
    }
    f.copies.swap(later);
}

extern "C" void troupe_register(const char *file, const char *name, size_t argument, void (*run)(const void *)) {
    std::string path = file;
    kernels()[name].push_back({path.substr(path.find_last_of('/') + 1), name, argument, run});
}
