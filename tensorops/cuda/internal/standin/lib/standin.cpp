// A stand-in for CUDA's driver and NVRTC, for tests on machines without a GPU: the
// functions that package driver binds, with the kernels compiled for the host.
//
// It is stricter than the real ones where that finds mistakes: memory comes full of
// NaN, an asynchronous copy must come from or go to page-locked memory, every address
// must lie in an allocation, and streams do their work late, in threads of their own.
// Numbers of functions' arguments and of errors are those of cuda.h and nvrtc.h.
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fibers.h"
#include "standin.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef int nvrtcResult;

enum {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    invalid_device = 101,
    invalid_image = 200,
    invalid_context = 201,
    invalid_handle = 400,
    not_found = 500,
    not_ready = 600,
    illegal_address = 700,
    launch_failed = 719,
    capture_unsupported = 900,
};

namespace {

struct Event;

typedef std::vector<std::function<void()>> Work;

struct Stream {
    std::deque<std::function<void()>> tasks; // the one that runs stays in front
    std::unique_ptr<Work> captured; // what is put into it while it is being captured
    bool closed = false;
    std::condition_variable changed;
    std::thread worker;
};

struct Event {
    unsigned long long recorded = 0, reached = 0; // counts: the last record, and what streams have come to
};

struct Graph {
    Work work;
    bool ready; // instantiated
};

struct Module {
    std::string file;
};

struct Program {
    std::string name, log;
};

struct Range {
    size_t bytes;
};

// All of the stand-in's state, guarded by mu. It is never destroyed: worker threads may
// outlive the end of main.
struct State {
    std::mutex mu;
    std::condition_variable progress; // an event was reached, a stream has less to do
    bool initialized = false;
    int contexts = 0;
    int failed = success; // what a kernel left behind: every later call reports it
    std::string message;
    std::map<uint64_t, Range> memory, pinned;
    std::set<Stream *> streams;
    std::set<Event *> events;
    std::set<Module *> modules;
    std::set<Graph *> graphs;
    std::set<Program *> programs;
    size_t limit = (size_t)1 << 34, used = 0;
    int delay_us = 0;
    std::mt19937 random{1};
    struct Injected {
        int after, code;
    };
    std::map<std::string, Injected> injected;
    std::map<std::string, long long> calls;
    std::map<const troupe::Kernel *, size_t> shared; // dynamic shared memory that kernels may have
    std::map<std::string, long long> left; // in the last context at its end, by kind
};

State &st = *new State;
char the_context; // there is one; its address is its handle
thread_local void *current = nullptr;

typedef std::unique_lock<std::mutex> Lock;

// enter counts a call and says what it has to fail with, before it does anything.
int enter(const char *name, bool needs_context) {
    st.calls[name]++;
    auto it = st.injected.find(name);
    if (it != st.injected.end() && --it->second.after == 0) {
        int code = it->second.code;
        st.injected.erase(it);
        return code;
    }
    if (!needs_context) return success;
    if (!st.initialized) return not_initialized;
    if (!current || st.contexts == 0) return invalid_context;
    return st.failed;
}

#define CALL(needs_context)                                       \
    Lock lock(st.mu);                                             \
    if (int code = enter(__func__, needs_context)) return code

bool inside(const std::map<uint64_t, Range> &ranges, uint64_t at, size_t bytes) {
    auto it = ranges.upper_bound(at);
    if (it == ranges.begin()) return false;
    --it;
    return at >= it->first && at - it->first + bytes <= it->second.bytes;
}

// fail makes the context useless, as a failed kernel does. Called with mu held.
void fail(int code, const std::string &why) {
    if (st.failed) return;
    st.failed = code;
    st.message = why;
    fprintf(stderr, "stand-in for CUDA: %s\n", why.c_str());
}

void work(Stream *s) {
    Lock lock(st.mu);
    for (;;) {
        s->changed.wait(lock, [&] { return s->closed || !s->tasks.empty(); });
        if (s->tasks.empty()) return;
        std::function<void()> &task = s->tasks.front();
        int delay = st.delay_us > 0 ? (int)(st.random() % (unsigned)st.delay_us) : 0;
        lock.unlock();
        if (delay) usleep((useconds_t)delay);
        task();
        lock.lock();
        s->tasks.pop_front();
        st.progress.notify_all();
    }
}

// put gives a stream something to do, unless the context has failed by then. Called with mu held.
void put(Stream *s, std::function<void()> task) {
    if (s->captured) {
        s->captured->push_back(std::move(task));
        return;
    }
    s->tasks.push_back([task] {
        {
            Lock lock(st.mu);
            if (int code = enter("task", false)) fail(code, "made to fail");
            if (st.failed) return;
        }
        task();
    });
    s->changed.notify_one();
}

bool idle() {
    for (Stream *s : st.streams)
        if (!s->tasks.empty()) return false;
    return true;
}

// copy puts a copy into a stream after looking at both of its ends. Called with mu held.
int copy(Stream *s, void *to, bool to_device, const void *from, bool from_device, size_t bytes) {
    if (!st.streams.count(s)) return invalid_handle;
    auto check = [=] {
        return bytes == 0 || (inside(to_device ? st.memory : st.pinned, (uint64_t)to, bytes) &&
                              inside(from_device ? st.memory : st.pinned, (uint64_t)from, bytes));
    };
    if (!check()) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu); // so that nothing is freed meanwhile
        if (!check()) return fail(illegal_address, "a copy from or to memory that has been freed");
        memcpy(to, from, bytes);
    });
    return success;
}

// end_context takes along whatever is left in it, as the real one does, and counts it:
// what was not given back before is a leak. The next context is a fresh one.
void end_context(Lock &lock) {
    st.progress.wait(lock, idle);
    st.left.clear();
    if (!st.failed) // a failed one takes nothing back before its end
        st.left = {{"memory", (long long)st.memory.size()}, {"pinned", (long long)st.pinned.size()},
                   {"streams", (long long)st.streams.size()}, {"events", (long long)st.events.size()},
                   {"modules", (long long)st.modules.size()}, {"graphs", (long long)st.graphs.size()}};
    for (auto &m : st.memory) free((void *)m.first);
    for (auto &m : st.pinned) free((void *)m.first);
    for (Stream *s : st.streams) {
        s->closed = true;
        s->changed.notify_one();
        s->worker.detach();
    }
    for (Event *e : st.events) delete e;
    for (Module *m : st.modules) delete m;
    for (Graph *g : st.graphs) delete g;
    st.graphs.clear();
    st.memory.clear();
    st.pinned.clear();
    st.streams.clear();
    st.events.clear();
    st.modules.clear();
    st.shared.clear();
    st.used = 0;
    st.contexts = 0;
    st.failed = success;
}

// The name of the program in an "image" of the stand-in's.
const char *const heading = "// stand-in for PTX of ";

// The file that an image is of: an "image" names it; real PTX is known by its entries, all
// of which must be kernels of one file. Empty if it is neither.
std::string file_of(const char *image) {
    if (strncmp(image, heading, strlen(heading)) == 0) {
        image += strlen(heading);
        return std::string(image, strcspn(image, "\n"));
    }
    std::string file;
    const char *word = ".entry ";
    for (const char *at = image; (at = strstr(at, word)) != nullptr;) {
        at += strlen(word);
        std::string of = troupe::file_of_kernel(std::string(at, strcspn(at, "( \n")));
        if (of.empty() || (!file.empty() && of != file)) return "";
        file = of;
    }
    return file;
}

} // namespace

extern "C" {

// ---- the driver

CUresult cuInit(unsigned flags) {
    CALL(false);
    if (flags) return invalid_value;
    st.initialized = true;
    return success;
}

CUresult cuDriverGetVersion(int *version) {
    CALL(false);
    *version = 12040;
    return success;
}

CUresult cuDeviceGetCount(int *n) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    *n = 1;
    return success;
}

CUresult cuDeviceGet(CUdevice *d, int ordinal) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    if (ordinal != 0) return invalid_device;
    *d = 0;
    return success;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
    CALL(false);
    snprintf(name, (size_t)bytes, "stand-in");
    return success;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
    CALL(false);
    *bytes = st.limit;
    return success;
}

CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice) {
    CALL(false);
    memcpy(uuid, "troupe-stand-in", 16);
    return success;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
    CALL(false);
    switch (attribute) {
    case 16: *value = 2; return success;     // multiprocessors: few, so that grids are small
    case 75: *value = 9; return success;     // compute capability
    case 76: *value = 0; return success;
    default: return invalid_value;
    }
}

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    st.contexts++;
    *context = &the_context;
    return success;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
    CALL(false);
    if (st.contexts == 0) return invalid_context;
    if (--st.contexts == 0) end_context(lock);
    return success;
}

CUresult cuCtxSetCurrent(void *context) {
    CALL(false);
    if (context && (context != &the_context || st.contexts == 0)) return invalid_context;
    current = context;
    return success;
}

CUresult cuCtxGetCurrent(void **context) {
    CALL(false);
    *context = current;
    return success;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    CALL(true);
    *total = st.limit;
    *available = st.limit - st.used;
    return success;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CALL(true);
    if (bytes == 0) return invalid_value;
    if (bytes > st.limit - st.used) return out_of_memory;
    void *m = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!m) return out_of_memory;
    memset(m, 0xff, bytes); // NaN: whoever reads what nobody wrote shall see it
    st.used += bytes;
    st.memory[(uint64_t)m] = {bytes};
    *address = (CUdeviceptr)m;
    return success;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CALL(true);
    auto it = st.memory.find(address);
    if (it == st.memory.end()) return invalid_value;
    st.progress.wait(lock, idle); // as the real one does
    it = st.memory.find(address);
    if (it == st.memory.end()) return invalid_value;
    st.used -= it->second.bytes;
    st.memory.erase(it);
    free((void *)address);
    return success;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned) {
    CALL(true);
    if (bytes == 0) return invalid_value;
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p) return out_of_memory;
    memset(*p, 0xff, bytes);
    st.pinned[(uint64_t)*p] = {bytes};
    return success;
}

CUresult cuMemFreeHost(void *p) {
    CALL(true);
    if (!st.pinned.count((uint64_t)p)) return invalid_value;
    st.progress.wait(lock, idle);
    st.pinned.erase((uint64_t)p);
    free(p);
    return success;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, Stream *s) {
    CALL(true);
    return copy(s, (void *)to, true, from, false, bytes);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, Stream *s) {
    CALL(true);
    return copy(s, to, false, (const void *)from, true, bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, Stream *s) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    auto check = [=] { return bytes == 0 || (inside(st.memory, to, bytes) && inside(st.memory, from, bytes)); };
    if (!check()) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu);
        if (!check()) return fail(illegal_address, "a copy of memory that has been freed");
        memmove((void *)to, (const void *)from, bytes);
    });
    return success;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, Stream *s) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    if (to % 4 || !inside(st.memory, to, 4 * words)) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu);
        if (!inside(st.memory, to, 4 * words)) return fail(illegal_address, "freed memory is set");
        for (size_t i = 0; i < words; i++) ((unsigned *)to)[i] = value;
    });
    return success;
}

CUresult cuStreamCreate(Stream **out, unsigned) {
    CALL(true);
    Stream *s = new Stream;
    // The process's signals are Go's business: none may reach a thread that Go does not know.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->worker = std::thread(work, s);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    st.streams.insert(s);
    *out = s;
    return success;
}

CUresult cuStreamDestroy_v2(Stream *s) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    st.streams.erase(s);
    s->closed = true;
    s->changed.notify_one();
    lock.unlock();
    s->worker.join(); // the rest of its work is done first
    delete s;
    return success;
}

CUresult cuStreamSynchronize(Stream *s) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    if (s->captured) return capture_unsupported;
    st.progress.wait(lock, [&] { return s->tasks.empty(); });
    return st.failed;
}

CUresult cuStreamWaitEvent(Stream *s, Event *e, unsigned flags) {
    CALL(true);
    if (!st.events.count(e) || !st.streams.count(s)) return invalid_handle;
    if (flags) return invalid_value;
    if (s->captured) return capture_unsupported; // the real one allows it; nobody here wants it
    s->tasks.push_back([e, number = e->recorded] { // waited for even when the context has failed
        Lock lock(st.mu);
        st.progress.wait(lock, [=] { return !st.events.count(e) || e->reached >= number; });
    });
    s->changed.notify_one();
    return success;
}

CUresult cuStreamBeginCapture_v2(Stream *s, int mode) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    if (mode != 2 || s->captured) return invalid_value; // relaxed
    s->captured = std::make_unique<Work>();
    return success;
}

CUresult cuStreamEndCapture(Stream *s, Graph **out) {
    Lock lock(st.mu);
    int code = enter(__func__, true);
    if (!st.streams.count(s)) return code ? code : invalid_handle;
    std::unique_ptr<Work> work = std::move(s->captured); // capturing ends in any case
    if (code || !work) return code ? code : invalid_value;
    Graph *g = new Graph{std::move(*work), false};
    st.graphs.insert(g);
    *out = g;
    return success;
}

CUresult cuGraphInstantiateWithFlags(Graph **out, Graph *g, unsigned long long flags) {
    CALL(true);
    if (!st.graphs.count(g) || g->ready) return invalid_handle;
    if (flags) return invalid_value;
    Graph *made = new Graph{g->work, true};
    st.graphs.insert(made);
    *out = made;
    return success;
}

static CUresult end_graph(Graph *g, bool ready) {
    if (!st.graphs.count(g) || g->ready != ready) return invalid_handle;
    st.graphs.erase(g);
    delete g; // what was launched of it has its own copy
    return success;
}

CUresult cuGraphDestroy(Graph *g) {
    CALL(true);
    return end_graph(g, false);
}

CUresult cuGraphExecDestroy(Graph *g) {
    CALL(true);
    return end_graph(g, true);
}

CUresult cuGraphLaunch(Graph *g, Stream *s) {
    CALL(true);
    if (!st.graphs.count(g) || !g->ready || !st.streams.count(s)) return invalid_handle;
    if (s->captured) return capture_unsupported; // as a child: nobody here wants it
    put(s, [work = g->work] {
        for (const auto &task : work) task();
    });
    return success;
}

CUresult cuEventCreate(Event **out, unsigned) {
    CALL(true);
    Event *e = new Event;
    st.events.insert(e);
    *out = e;
    return success;
}

CUresult cuEventDestroy_v2(Event *e) {
    CALL(true);
    if (!st.events.count(e)) return invalid_handle;
    st.progress.wait(lock, [&] { return e->reached >= e->recorded; });
    st.events.erase(e);
    delete e;
    return success;
}

CUresult cuEventRecord(Event *e, Stream *s) {
    CALL(true);
    if (!st.events.count(e) || !st.streams.count(s)) return invalid_handle;
    if (s->captured) return capture_unsupported; // the real one allows it; nobody here wants it
    unsigned long long number = ++e->recorded;
    s->tasks.push_back([=] { // reached even when the context has failed: who waits shall hear of it
        Lock lock(st.mu);
        if (e->reached < number) e->reached = number;
        st.progress.notify_all();
    });
    s->changed.notify_one();
    return success;
}

CUresult cuEventSynchronize(Event *e) {
    CALL(true);
    if (!st.events.count(e)) return invalid_handle;
    st.progress.wait(lock, [&] { return e->reached >= e->recorded; });
    return st.failed;
}

CUresult cuModuleLoadData(Module **out, const void *image) {
    CALL(true);
    std::string file = file_of((const char *)image);
    if (file.empty()) return invalid_image;
    Module *m = new Module{file};
    st.modules.insert(m);
    *out = m;
    return success;
}

CUresult cuModuleUnload(Module *m) {
    CALL(true);
    if (!st.modules.count(m)) return invalid_handle;
    st.modules.erase(m);
    delete m;
    return success;
}

CUresult cuModuleGetFunction(const troupe::Kernel **out, Module *m, const char *name) {
    CALL(true);
    if (!st.modules.count(m)) return invalid_handle;
    *out = troupe::find_kernel(m->file, name);
    return *out ? success : not_found;
}

CUresult cuFuncSetAttribute(const troupe::Kernel *k, int attribute, int value) {
    CALL(true);
    if (!k) return invalid_handle;
    if (attribute != 8 || value < 0 || (size_t)value > troupe::max_dynamic) return invalid_value; // 8: the most dynamic shared memory
    st.shared[k] = (size_t)value;
    return success;
}

CUresult cuLaunchKernel(const troupe::Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, Stream *s, void **params, void **extra) {
    CALL(true);
    if (!st.streams.count(s)) return invalid_handle;
    // The limits that every GPU has.
    if (!gx || !gy || !gz || gx > 0x7fffffffu || gy > 65535 || gz > 65535) return invalid_value;
    if (!bx || !by || !bz || bz > 64 || (uint64_t)bx * by * bz > 1024) return invalid_value;
    // More dynamic shared memory takes that the kernel has been told.
    auto allowed = st.shared.find(k);
    if (shared > (allowed == st.shared.end() ? 48u << 10 : allowed->second)) {
        fprintf(stderr, "stand-in for CUDA: kernel %s is launched with %u bytes of shared memory\n", k->name.c_str(), shared);
        return invalid_value;
    }
    // The argument comes as a buffer with its size, and must have the struct's.
    if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return invalid_value;
    size_t bytes = *(size_t *)extra[3];
    if (bytes != k->argument) {
        fprintf(stderr, "stand-in for CUDA: kernel %s takes %zu bytes, the launch gives %zu\n", k->name.c_str(), k->argument, bytes);
        return invalid_value;
    }
    auto argument = std::make_shared<std::vector<uint64_t>>((bytes + 7) / 8); // copied at once, as the real one does
    memcpy(argument->data(), extra[1], bytes);
    put(s, [=] {
        std::string failure = troupe::run_kernel(*k, {gx, gy, gz}, {bx, by, bz}, shared, argument->data());
        if (!failure.empty()) {
            Lock lock(st.mu);
            fail(launch_failed, "kernel " + failure);
        }
    });
    return success;
}

CUresult cuGetErrorName(int code, const char **name) {
    static const std::map<int, const char *> names = {
        {invalid_value, "CUDA_ERROR_INVALID_VALUE"}, {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
        {not_initialized, "CUDA_ERROR_NOT_INITIALIZED"}, {invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
        {invalid_image, "CUDA_ERROR_INVALID_IMAGE"}, {invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
        {invalid_handle, "CUDA_ERROR_INVALID_HANDLE"}, {not_found, "CUDA_ERROR_NOT_FOUND"},
        {not_ready, "CUDA_ERROR_NOT_READY"}, {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {launch_failed, "CUDA_ERROR_LAUNCH_FAILED"}, {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
    Lock lock(st.mu);
    auto it = names.find(code);
    *name = it == names.end() ? nullptr : it->second;
    return *name ? success : invalid_value;
}

CUresult cuGetErrorString(int code, const char **text) {
    *text = "the stand-in says so";
    return code < 0 ? invalid_value : success;
}

// ---- NVRTC

nvrtcResult nvrtcVersion(int *major, int *minor) {
    CALL(false);
    *major = 12;
    *minor = 4;
    return success;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
    CALL(false);
    *n = 2;
    return success;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs) {
    CALL(false);
    archs[0] = 80;
    archs[1] = 90;
    return success;
}

nvrtcResult nvrtcCreateProgram(Program **out, const char *source, const char *name, int headers, const char *const *, const char *const *names) {
    CALL(false);
    Program *p = new Program{name, ""};
    // An #include needs a header of that name.
    const char *word = "#include \"";
    for (const char *at = source; (at = strstr(at, word)) != nullptr;) {
        at += strlen(word);
        std::string wanted(at, strcspn(at, "\"\n"));
        bool given = false;
        for (int i = 0; i < headers; i++) given = given || wanted == names[i];
        if (!given) p->log += p->name + ": no header " + wanted + "\n";
    }
    st.programs.insert(p);
    *out = p;
    return success;
}

nvrtcResult nvrtcCompileProgram(Program *p, int, const char *const *) {
    CALL(false);
    return p->log.empty() ? 0 : 6; // NVRTC_ERROR_COMPILATION
}

static std::string image_of(Program *p) { return heading + p->name + "\n"; }

nvrtcResult nvrtcGetPTXSize(Program *p, size_t *bytes) {
    CALL(false);
    *bytes = image_of(p).size() + 1;
    return success;
}

nvrtcResult nvrtcGetPTX(Program *p, char *out) {
    CALL(false);
    strcpy(out, image_of(p).c_str());
    return success;
}

nvrtcResult nvrtcGetCUBINSize(Program *p, size_t *bytes) {
    CALL(false);
    *bytes = image_of(p).size() + 1;
    return success;
}

nvrtcResult nvrtcGetCUBIN(Program *p, char *out) {
    CALL(false);
    strcpy(out, image_of(p).c_str());
    return success;
}

nvrtcResult nvrtcGetProgramLogSize(Program *p, size_t *bytes) {
    CALL(false);
    *bytes = p->log.size() + 1;
    return success;
}

nvrtcResult nvrtcGetProgramLog(Program *p, char *out) {
    CALL(false);
    strcpy(out, p->log.c_str());
    return success;
}

nvrtcResult nvrtcDestroyProgram(Program **p) {
    CALL(false);
    if (!st.programs.erase(*p)) return 4; // NVRTC_ERROR_INVALID_PROGRAM
    delete *p;
    *p = nullptr;
    return success;
}

// ---- hooks for tests

// Makes the n-th call from now of a function (or "task": of what streams do) fail once.
void troupe_standin_fail(const char *call, int n, int code) {
    Lock lock(st.mu);
    st.injected[call] = {n, code};
}

// Takes back all that is set, and ends the context if there is one.
void troupe_standin_reset(void) {
    Lock lock(st.mu);
    st.injected.clear();
    st.delay_us = 0;
    end_context(lock);
    st.left.clear();
    st.message.clear();
    st.limit = (size_t)1 << 34;
    for (Program *p : st.programs) delete p;
    st.programs.clear();
    troupe::reset_blas();
}

// Each task of a stream waits up to so many microseconds before it begins.
void troupe_standin_delay(int us) {
    Lock lock(st.mu);
    st.delay_us = us;
}

// Sets the bytes of device memory.
void troupe_standin_memory(size_t bytes) {
    Lock lock(st.mu);
    st.limit = bytes;
}

// How many things of a kind the last context still had at its end; and how many contexts
// and programs there are.
long long troupe_standin_left(const char *what) {
    Lock lock(st.mu);
    std::string w = what;
    if (w == "contexts") return st.contexts;
    if (w == "programs") return (long long)st.programs.size();
    if (w == "descriptors") return troupe::blas_left();
    return st.left[w];
}

// How many times a function was called.
long long troupe_standin_calls(const char *name) {
    Lock lock(st.mu);
    return st.calls[name];
}

// Why the context has failed.
const char *troupe_standin_message(void) {
    Lock lock(st.mu);
    return st.message.c_str();
}
}

// What the other libraries' functions are made of: see standin.h.
namespace troupe {

std::unique_lock<std::mutex> locked() { return Lock(st.mu); }
int enter_call(const char *name) { return enter(name, false); }
bool usable() { return current && st.contexts > 0 && !st.failed; }
bool on_device(uint64_t at, size_t bytes) { return inside(st.memory, at, bytes); }
void fail_context(const std::string &why) { fail(illegal_address, why); }

bool put_task(void *stream, std::function<void()> task) {
    Stream *s = (Stream *)stream;
    if (!st.streams.count(s)) return false;
    put(s, std::move(task));
    return true;
}

} // namespace troupe
