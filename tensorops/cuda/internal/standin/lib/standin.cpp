// A stand-in for CUDA's driver and NVRTC, for tests on machines without a GPU: the
// functions that package driver binds, with the kernels compiled for the host.
//
// It is stricter than the real ones where that finds mistakes: memory comes full of
// NaN, an asynchronous copy must come from or go to page-locked memory, every address
// must lie in an allocation, and streams do their work late, in threads of their own.
// Numbers of functions' arguments and of errors are those of cuda.h and nvrtc.h.
//
// It has as many devices as TROUPE_STANDIN_DEVICES says when the driver is initialised, one
// without it. Each has a memory of its own: what is asked of one device with an address of
// another's fails, but for a copy between peers from a device that access was enabled to. With
// TROUPE_STANDIN_PEERS=0 no device has access to another.
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
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
#include "watch.h"

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
    peer_access_unsupported = 217,
    peer_access_already_enabled = 704,
    launch_failed = 719,
    capture_unsupported = 900,
};

namespace {

struct Context;

// Task is something for a stream, and what the log says of it.
struct Task {
    std::function<void()> run;
    troupe::Record record;
};
typedef std::vector<Task> Work;

// Wait is a thread of the host's that waits for the device.
struct Wait {
    std::function<bool()> over;
};

struct Stream {
    Context *context;
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

// The primary context of a device; its address is its handle. It is there as long as it has users.
struct Context {
    int device, users = 0;
    int failed = success; // what a kernel left behind: every later call reports it
    std::map<uint64_t, Range> memory, pinned;
    std::set<Stream *> streams;
    std::set<Event *> events;
    std::set<Module *> modules;
    std::set<Graph *> graphs;
    std::set<Context *> peers; // whose memory it may copy from and to
    size_t used = 0;
    std::map<const troupe::Kernel *, size_t> shared; // dynamic shared memory that kernels may have
    std::map<std::string, long long> left; // in the last one at its end, by kind
};

const int limit_devices = 16;

// All of the stand-in's state, guarded by mu. It is never destroyed: worker threads may
// outlive the end of main.
struct State {
    std::mutex mu;
    std::condition_variable progress; // an event was reached, a stream has less to do
    bool initialized = false;
    int devices = 1;
    Context contexts[limit_devices];
    std::string message;
    std::set<Program *> programs;
    size_t limit = (size_t)1 << 34; // bytes of each device's memory
    size_t used = 0, most = 0, pinned_used = 0, pinned_most = 0; // bytes of all devices; the most at a time since the log was begun
    int processors = 2; // few, so that grids are small
    int delay_us = 0;
    // What counting needs: see the hooks.
    bool hollow = false, logging = false;
    troupe::Record log;
    uint64_t launches = 0; // of kernels, so far
    uint64_t next_hollow = (uint64_t)1 << 40;
    // Of a device that is slower than the host: streams go on only while a thread of the host's waits
    // for them that has been chosen.
    int quiet_us = 0;
    std::list<Wait *> waits; // those that came first are in front
    Wait *chosen = nullptr;
    unsigned long long activity = 0; // calls so far
    std::mt19937 random{1};
    struct Injected {
        int after, code;
    };
    std::map<std::string, Injected> injected;
    std::map<std::string, long long> calls;

    State() {
        for (int i = 0; i < limit_devices; i++) contexts[i].device = i;
    }
};

State &st = *new State;
thread_local Context *current = nullptr; // of a stream's own thread: the stream's

typedef std::unique_lock<std::mutex> Lock;

// enter counts a call and says what it has to fail with, before it does anything.
int enter(const char *name, bool needs_context) {
    st.calls[name]++;
    st.activity++;
    auto it = st.injected.find(name);
    if (it != st.injected.end() && --it->second.after == 0) {
        int code = it->second.code;
        st.injected.erase(it);
        return code;
    }
    if (!needs_context) return success;
    if (!st.initialized) return not_initialized;
    if (!current || current->users == 0) return invalid_context;
    return current->failed;
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

// stranger is another device that memory is of, if the context has no access to it; else null.
const Context *stranger(const Context *c, uint64_t at) {
    for (const Context &other : st.contexts)
        if (&other != c && !c->peers.count((Context *)&other) && inside(other.memory, at, 1)) return &other;
    return nullptr;
}

// strange_memory says whether an argument has an address of another device's memory; empty if it has
// none. What is no address is no number that large.
std::string strange_memory(const std::vector<uint64_t> &argument) {
    Lock lock(st.mu);
    for (uint64_t word : argument)
        if (const Context *other = stranger(current, word))
            return " of device " + std::to_string(current->device) + " is given memory of device " + std::to_string(other->device);
    return "";
}

// locked_host reports whether memory of the host's is page-locked, by whichever device: it is so for all.
bool locked_host(uint64_t at, size_t bytes) {
    for (const Context &c : st.contexts)
        if (inside(c.pinned, at, bytes)) return true;
    return false;
}

// fail makes the thread's context useless, as a failed kernel does. Called with mu held.
void fail(int code, const std::string &why) {
    if (current->failed) return;
    current->failed = code;
    st.message = why;
    fprintf(stderr, "stand-in for CUDA: %s\n", why.c_str());
}

// may_run reports whether streams may go on. Called with mu held.
bool may_run() {
    if (st.quiet_us == 0) return true;
    if (st.chosen && st.chosen->over()) st.chosen = nullptr;
    return st.chosen != nullptr;
}

// await lets a thread of the host's wait until something holds. Called with mu held.
void await(Lock &lock, std::function<bool()> over) {
    Wait w{std::move(over)};
    st.waits.push_back(&w);
    st.progress.wait(lock, w.over);
    st.waits.remove(&w);
    if (st.chosen == &w) st.chosen = nullptr;
}

// pace is a thread of its own while the device is slow: once the host has made no call for
// quiet_us, it has launched all that it can without hearing of the device. Then what the
// host has waited for longest is done, and nothing behind it.
void pace() {
    Lock lock(st.mu);
    unsigned long long before = 0;
    while (st.quiet_us > 0) {
        const int us = st.quiet_us;
        lock.unlock();
        usleep((useconds_t)us);
        lock.lock();
        if (st.activity == before && !st.chosen && !st.waits.empty()) {
            st.chosen = st.waits.front();
            for (Context &c : st.contexts)
                for (Stream *s : c.streams) s->changed.notify_one();
        }
        before = st.activity;
    }
}

void work(Stream *s) {
    current = s->context;
    Lock lock(st.mu);
    for (;;) {
        s->changed.wait(lock, [&] { return s->closed || (!s->tasks.empty() && may_run()); });
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

bool idle(Context *c);

void log(const troupe::Record &r) {
    if (st.logging) st.log.insert(st.log.end(), r.begin(), r.end());
}

// put gives a stream something to do, unless the context has failed by then. Called with mu held.
void put(Stream *s, std::function<void()> task, troupe::Record record) {
    if (s->captured) {
        s->captured->push_back({std::move(task), std::move(record)});
        return;
    }
    if (st.quiet_us > 0 && idle(s->context)) log({troupe::log_idle, 0});
    log(record);
    s->tasks.push_back([task] {
        {
            Lock lock(st.mu);
            if (int code = enter("task", false)) fail(code, "made to fail");
            if (current->failed) return;
        }
        task();
    });
    s->changed.notify_one();
}

bool idle(Context *c) {
    for (Stream *s : c->streams)
        if (!s->tasks.empty()) return false;
    return true;
}

// copy puts a copy into a stream after looking at both of its ends. Called with mu held.
int copy(Stream *s, void *to, bool to_device, const void *from, bool from_device, size_t bytes) {
    if (!current->streams.count(s)) return invalid_handle;
    auto there = [=](const void *at, bool on_device) {
        return on_device ? inside(s->context->memory, (uint64_t)at, bytes) : locked_host((uint64_t)at, bytes);
    };
    auto check = [=] { return bytes == 0 || (there(to, to_device) && there(from, from_device)); };
    if (!check()) return invalid_value;
    troupe::Record record = {to_device ? troupe::log_in : troupe::log_out, 2, (uint64_t)(to_device ? to : from), bytes};
    if (to_device && st.logging && bytes <= troupe::most_logged && !s->captured) { // tables of kernels, for one, which the counting reads
        record[1] += (bytes + 7) / 8;
        record.resize(2 + record[1]);
        memcpy(&record[4], from, bytes);
    }
    put(s, [=] {
        Lock lock(st.mu); // so that nothing is freed meanwhile
        if (!check()) return fail(illegal_address, "a copy from or to memory that has been freed");
        if (!st.hollow) memcpy(to, from, bytes);
        else if (!to_device) memset(to, 0, bytes);
    }, std::move(record));
    return success;
}

// give_back gives memory of the device's back.
void give_back(uint64_t at, size_t bytes) {
    if (at >= (uint64_t)1 << 40 && at < st.next_hollow) return; // there is none
    if (!troupe::unwatch(at, bytes)) free((void *)at);
}

// end_context takes along whatever is left in it, as the real one does, and counts it:
// what was not given back before is a leak. The next context is a fresh one.
void end_context(Context *c, Lock &lock) {
    await(lock, [=] { return idle(c); });
    c->left.clear();
    if (!c->failed) // a failed one takes nothing back before its end
        c->left = {{"memory", (long long)c->memory.size()}, {"pinned", (long long)c->pinned.size()},
                   {"streams", (long long)c->streams.size()}, {"events", (long long)c->events.size()},
                   {"modules", (long long)c->modules.size()}, {"graphs", (long long)c->graphs.size()}};
    for (auto &m : c->memory) give_back(m.first, m.second.bytes);
    for (auto &m : c->pinned) {
        st.pinned_used -= m.second.bytes;
        free((void *)m.first);
    }
    st.used -= c->used;
    for (Stream *s : c->streams) {
        s->closed = true;
        s->changed.notify_one();
        s->worker.detach();
    }
    for (Event *e : c->events) delete e;
    for (Module *m : c->modules) delete m;
    for (Graph *g : c->graphs) delete g;
    for (Context &other : st.contexts) other.peers.erase(c);
    c->graphs.clear();
    c->memory.clear();
    c->pinned.clear();
    c->streams.clear();
    c->events.clear();
    c->modules.clear();
    c->peers.clear();
    c->shared.clear();
    c->used = 0;
    c->users = 0;
    c->failed = success;
}

// setting is a number that the environment gives, or another.
int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

// device_there reports whether there is a device of a number.
bool device_there(int d) { return d >= 0 && d < st.devices; }

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
    int devices = setting("TROUPE_STANDIN_DEVICES", 1);
    if (devices < 1 || devices > limit_devices) return invalid_value;
    st.devices = devices;
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
    *n = st.devices;
    return success;
}

CUresult cuDeviceGet(CUdevice *d, int ordinal) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    if (!device_there(ordinal)) return invalid_device;
    *d = ordinal;
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

CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice d) {
    CALL(false);
    if (!device_there(d)) return invalid_device;
    memcpy(uuid, "troupe-stand-in", 16);
    uuid[15] = (unsigned char)d;
    return success;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
    CALL(false);
    switch (attribute) {
    case 16: *value = st.processors; return success; // multiprocessors
    case 75: *value = 9; return success;     // compute capability
    case 76: *value = 0; return success;
    default: return invalid_value;
    }
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    if (!device_there(d) || !device_there(peer)) return invalid_device;
    *can = d != peer && setting("TROUPE_STANDIN_PEERS", 1);
    return success;
}

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice d) {
    CALL(false);
    if (!st.initialized) return not_initialized;
    if (!device_there(d)) return invalid_device;
    Context *c = &st.contexts[d];
    c->users++;
    *context = c;
    return success;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
    CALL(false);
    if (!device_there(d)) return invalid_device;
    Context *c = &st.contexts[d];
    if (c->users == 0) return invalid_context;
    if (--c->users == 0) end_context(c, lock);
    return success;
}

// context_of is the context that a handle is of; null: none that is there.
static Context *context_of(void *handle) {
    for (Context &c : st.contexts)
        if (&c == handle && c.users > 0) return &c;
    return nullptr;
}

CUresult cuCtxSetCurrent(void *handle) {
    CALL(false);
    Context *c = context_of(handle);
    if (handle && !c) return invalid_context;
    current = c;
    return success;
}

CUresult cuCtxGetCurrent(void **context) {
    CALL(false);
    *context = current;
    return success;
}

CUresult cuCtxEnablePeerAccess(void *handle, unsigned flags) {
    CALL(true);
    Context *peer = context_of(handle);
    if (!peer) return invalid_context;
    if (flags || peer == current) return invalid_value;
    if (!setting("TROUPE_STANDIN_PEERS", 1)) return peer_access_unsupported;
    return current->peers.insert(peer).second ? success : peer_access_already_enabled;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    CALL(true);
    *total = st.limit;
    *available = st.limit - current->used;
    return success;
}

// How much of a block is filled. Few tests compute with as much, and what is lent to cuBLASLt takes longer to
// fill than to use.
const size_t most_filled = 4 << 20;

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CALL(true);
    if (bytes == 0) return invalid_value;
    if (bytes > st.limit - current->used) return out_of_memory;
    const size_t rounded = (bytes + 255) / 256 * 256;
    void *m = nullptr;
    if (st.hollow) {
        m = (void *)st.next_hollow; // where no memory is: nothing reads or writes it
        st.next_hollow += rounded;
    } else {
        m = troupe::watched(rounded);
        if (!m) m = aligned_alloc(256, rounded);
        if (!m) return out_of_memory;
        memset(m, 0xff, bytes < most_filled ? bytes : most_filled); // NaN: whoever reads what nobody wrote shall see it
    }
    current->used += bytes;
    st.used += bytes;
    if (st.used > st.most) st.most = st.used;
    current->memory[(uint64_t)m] = {bytes};
    *address = (CUdeviceptr)m;
    return success;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CALL(true);
    Context *c = current;
    auto it = c->memory.find(address);
    if (it == c->memory.end()) return invalid_value;
    await(lock, [=] { return idle(c); }); // as the real one does
    it = c->memory.find(address);
    if (it == c->memory.end()) return invalid_value;
    const size_t bytes = it->second.bytes;
    c->used -= bytes;
    st.used -= bytes;
    c->memory.erase(it);
    give_back(address, bytes);
    return success;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    CALL(true);
    if (bytes == 0 || flags != 1) return invalid_value; // portable: page-locked for all contexts
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p) return out_of_memory;
    memset(*p, 0xff, bytes);
    st.pinned_used += bytes;
    if (st.pinned_used > st.pinned_most) st.pinned_most = st.pinned_used;
    current->pinned[(uint64_t)*p] = {bytes};
    return success;
}

CUresult cuMemFreeHost(void *p) {
    CALL(true);
    Context *c = current;
    if (!c->pinned.count((uint64_t)p)) return invalid_value;
    await(lock, [=] { return idle(c); });
    st.pinned_used -= c->pinned[(uint64_t)p].bytes;
    c->pinned.erase((uint64_t)p);
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
    if (!current->streams.count(s)) return invalid_handle;
    const Context *c = current;
    auto check = [=] { return bytes == 0 || (inside(c->memory, to, bytes) && inside(c->memory, from, bytes)); };
    if (!check()) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu);
        if (!check()) return fail(illegal_address, "a copy of memory that has been freed");
        if (!st.hollow) memmove((void *)to, (const void *)from, bytes);
    }, {troupe::log_within, 3, to, from, bytes});
    return success;
}

// The real one goes through the host where access is not enabled, which nobody here wants; and its
// stream may be of either device, where here the one that takes has it.
CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *to_handle, CUdeviceptr from, void *from_handle, size_t bytes, Stream *s) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    Context *taker = context_of(to_handle), *giver = context_of(from_handle);
    if (!taker || !giver) return invalid_context;
    if (taker != current || (giver != taker && !taker->peers.count(giver))) return invalid_value;
    auto check = [=] {
        return bytes == 0 || (inside(taker->memory, to, bytes) && inside(giver->memory, from, bytes));
    };
    if (!check()) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu);
        if (!check()) return fail(illegal_address, "a copy of a peer's memory that has been freed");
        if (!st.hollow) memmove((void *)to, (const void *)from, bytes);
    }, {troupe::log_within, 3, to, from, bytes});
    return success;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, Stream *s) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    if (to % 4 || !inside(current->memory, to, 4 * words)) return invalid_value;
    put(s, [=] {
        Lock lock(st.mu);
        if (!inside(current->memory, to, 4 * words)) return fail(illegal_address, "freed memory is set");
        for (size_t i = 0; i < words && !st.hollow; i++) ((unsigned *)to)[i] = value;
    }, {troupe::log_set, 2, to, 4 * words});
    return success;
}

CUresult cuStreamCreate(Stream **out, unsigned) {
    CALL(true);
    Stream *s = new Stream{};
    s->context = current;
    // The process's signals are Go's business: none may reach a thread that Go does not know.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->worker = std::thread(work, s);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    current->streams.insert(s);
    *out = s;
    return success;
}

CUresult cuStreamDestroy_v2(Stream *s) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    current->streams.erase(s);
    s->closed = true;
    s->changed.notify_one();
    lock.unlock();
    s->worker.join(); // the rest of its work is done first
    delete s;
    return success;
}

CUresult cuStreamSynchronize(Stream *s) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    if (s->captured) return capture_unsupported;
    await(lock, [&] { return s->tasks.empty(); });
    return current->failed;
}

CUresult cuStreamWaitEvent(Stream *s, Event *e, unsigned flags) {
    CALL(true);
    if (!current->events.count(e) || !current->streams.count(s)) return invalid_handle;
    if (flags) return invalid_value;
    if (s->captured) return capture_unsupported; // the real one allows it; nobody here wants it
    s->tasks.push_back([e, number = e->recorded] { // waited for even when the context has failed
        Lock lock(st.mu);
        st.progress.wait(lock, [=] { return !current->events.count(e) || e->reached >= number; });
    });
    s->changed.notify_one();
    return success;
}

CUresult cuStreamBeginCapture_v2(Stream *s, int mode) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    if (mode != 2 || s->captured) return invalid_value; // relaxed
    s->captured = std::make_unique<Work>();
    return success;
}

CUresult cuStreamEndCapture(Stream *s, Graph **out) {
    Lock lock(st.mu);
    int code = enter(__func__, true);
    if (!current->streams.count(s)) return code ? code : invalid_handle;
    std::unique_ptr<Work> work = std::move(s->captured); // capturing ends in any case
    if (code || !work) return code ? code : invalid_value;
    Graph *g = new Graph{std::move(*work), false};
    current->graphs.insert(g);
    *out = g;
    return success;
}

CUresult cuGraphInstantiateWithFlags(Graph **out, Graph *g, unsigned long long flags) {
    CALL(true);
    if (!current->graphs.count(g) || g->ready) return invalid_handle;
    if (flags) return invalid_value;
    Graph *made = new Graph{g->work, true};
    current->graphs.insert(made);
    *out = made;
    return success;
}

static CUresult end_graph(Graph *g, bool ready) {
    if (!current->graphs.count(g) || g->ready != ready) return invalid_handle;
    current->graphs.erase(g);
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
    if (!current->graphs.count(g) || !g->ready || !current->streams.count(s)) return invalid_handle;
    if (s->captured) return capture_unsupported; // as a child: nobody here wants it
    troupe::Record record = {troupe::log_graph, 1, g->work.size()};
    for (const Task &task : g->work) record.insert(record.end(), task.record.begin(), task.record.end());
    put(s, [work = g->work] {
        for (const Task &task : work) task.run();
    }, std::move(record));
    return success;
}

CUresult cuEventCreate(Event **out, unsigned) {
    CALL(true);
    Event *e = new Event;
    current->events.insert(e);
    *out = e;
    return success;
}

CUresult cuEventDestroy_v2(Event *e) {
    CALL(true);
    if (!current->events.count(e)) return invalid_handle;
    await(lock, [&] { return e->reached >= e->recorded; });
    current->events.erase(e);
    delete e;
    return success;
}

CUresult cuEventRecord(Event *e, Stream *s) {
    CALL(true);
    if (!current->events.count(e) || !current->streams.count(s)) return invalid_handle;
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
    if (!current->events.count(e)) return invalid_handle;
    await(lock, [&, number = e->recorded] { return e->reached >= number; });
    return current->failed;
}

CUresult cuModuleLoadData(Module **out, const void *image) {
    CALL(true);
    std::string file = file_of((const char *)image);
    if (file.empty()) return invalid_image;
    Module *m = new Module{file};
    current->modules.insert(m);
    *out = m;
    return success;
}

CUresult cuModuleUnload(Module *m) {
    CALL(true);
    if (!current->modules.count(m)) return invalid_handle;
    current->modules.erase(m);
    delete m;
    return success;
}

CUresult cuModuleGetFunction(const troupe::Kernel **out, Module *m, const char *name) {
    CALL(true);
    if (!current->modules.count(m)) return invalid_handle;
    *out = troupe::find_kernel(m->file, name);
    return *out ? success : not_found;
}

CUresult cuFuncSetAttribute(const troupe::Kernel *k, int attribute, int value) {
    CALL(true);
    if (!k) return invalid_handle;
    if (attribute != 8 || value < 0 || (size_t)value > troupe::max_dynamic) return invalid_value; // 8: the most dynamic shared memory
    current->shared[k] = (size_t)value;
    return success;
}

CUresult cuLaunchKernel(const troupe::Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, Stream *s, void **params, void **extra) {
    CALL(true);
    if (!current->streams.count(s)) return invalid_handle;
    // The limits that every GPU has.
    if (!gx || !gy || !gz || gx > 0x7fffffffu || gy > 65535 || gz > 65535) return invalid_value;
    if (!bx || !by || !bz || bz > 64 || (uint64_t)bx * by * bz > 1024) return invalid_value;
    // More dynamic shared memory takes that the kernel has been told.
    auto allowed = current->shared.find(k);
    if (shared > (allowed == current->shared.end() ? 48u << 10 : allowed->second)) {
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
    const uint64_t number = ++st.launches;
    troupe::Record record = {troupe::log_kernel, 7 + argument->size(), number, (uint64_t)k, gx, gy, gz, bx, bytes};
    record.insert(record.end(), argument->begin(), argument->end());
    put(s, [=] {
        if (st.hollow) return;
        if (std::string other = strange_memory(*argument); !other.empty()) {
            Lock lock(st.mu);
            return fail(illegal_address, "kernel " + k->name + other);
        }
        std::string failure = troupe::run_kernel(*k, {gx, gy, gz}, {bx, by, bz}, shared, argument->data());
        troupe::watched_launch(number);
        if (!failure.empty()) {
            Lock lock(st.mu);
            fail(launch_failed, "kernel " + failure);
        }
    }, std::move(record));
    return success;
}

CUresult cuGetErrorName(int code, const char **name) {
    static const std::map<int, const char *> names = {
        {invalid_value, "CUDA_ERROR_INVALID_VALUE"}, {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
        {not_initialized, "CUDA_ERROR_NOT_INITIALIZED"}, {invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
        {invalid_image, "CUDA_ERROR_INVALID_IMAGE"}, {invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
        {invalid_handle, "CUDA_ERROR_INVALID_HANDLE"}, {not_found, "CUDA_ERROR_NOT_FOUND"},
        {not_ready, "CUDA_ERROR_NOT_READY"}, {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {launch_failed, "CUDA_ERROR_LAUNCH_FAILED"}, {peer_access_unsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
        {peer_access_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"}, {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
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

// Takes back all that is set, and ends the contexts that there are.
void troupe_standin_reset(void) {
    Lock lock(st.mu);
    st.injected.clear();
    st.delay_us = st.quiet_us = 0;
    for (Context &c : st.contexts) {
        for (Stream *s : c.streams) s->changed.notify_one();
        end_context(&c, lock);
        c.left.clear();
    }
    st.hollow = st.logging = false;
    st.log.clear();
    st.processors = 2;
    st.most = st.pinned_most = 0;
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

// Sets the bytes of each device's memory.
void troupe_standin_memory(size_t bytes) {
    Lock lock(st.mu);
    st.limit = bytes;
}

// How many things of a kind the devices' last contexts still had at their ends; and how many
// contexts and programs there are.
long long troupe_standin_left(const char *what) {
    Lock lock(st.mu);
    std::string w = what;
    if (w == "programs") return (long long)st.programs.size();
    if (w == "descriptors") return troupe::blas_left();
    long long sum = 0;
    for (Context &c : st.contexts) sum += w == "contexts" ? c.users : c.left[w];
    return sum;
}

// How many times a function was called.
long long troupe_standin_calls(const char *name) {
    Lock lock(st.mu);
    return st.calls[name];
}

// Lets streams do nothing, and memory be none: what is copied from the device is zeros. Before
// there is a context.
void troupe_standin_hollow(int on) {
    Lock lock(st.mu);
    st.hollow = on;
}

// Sets the device's multiprocessors.
void troupe_standin_processors(int n) {
    Lock lock(st.mu);
    st.processors = n;
}

// Begins the log, or takes it up again after it was read.
void troupe_standin_log_begin(void) {
    Lock lock(st.mu);
    st.logging = true;
    st.log.clear();
    st.most = st.used;
    st.pinned_most = st.pinned_used;
}

// How many words the log has.
size_t troupe_standin_log_size(void) {
    Lock lock(st.mu);
    return st.log.size();
}

// Copies at most so many words of the log, and takes those away that are copied.
size_t troupe_standin_log_take(uint64_t *to, size_t words) {
    Lock lock(st.mu);
    if (words > st.log.size()) words = st.log.size();
    memcpy(to, st.log.data(), words * sizeof *to);
    st.log.erase(st.log.begin(), st.log.begin() + (long)words);
    return words;
}

// The name of a kernel in the log.
const char *troupe_standin_kernel(uint64_t kernel) { return ((const troupe::Kernel *)kernel)->name.c_str(); }

// The most bytes at a time since the log was begun: of "memory" or "pinned".
long long troupe_standin_most(const char *what) {
    Lock lock(st.mu);
    return (long long)(strcmp(what, "memory") == 0 ? st.most : st.pinned_most);
}

// Makes the device slower than the host; 0: as fast as it is. The host is taken to wait once it has
// made no call for so many microseconds.
void troupe_standin_slow(int quiet_us) {
    Lock lock(st.mu);
    const bool begin = st.quiet_us == 0 && quiet_us > 0;
    st.quiet_us = quiet_us;
    for (Context &c : st.contexts)
        for (Stream *s : c.streams) s->changed.notify_one();
    lock.unlock();
    if (!begin) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(pace).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Why a context has failed.
const char *troupe_standin_message(void) {
    Lock lock(st.mu);
    return st.message.c_str();
}
}

// What the other libraries' functions are made of: see standin.h.
namespace troupe {

std::unique_lock<std::mutex> locked() { return Lock(st.mu); }
int enter_call(const char *name) { return enter(name, false); }
bool usable() { return current && current->users > 0 && !current->failed; }
bool on_device(uint64_t at, size_t bytes) { return inside(current->memory, at, bytes); }
void fail_context(const std::string &why) { fail(illegal_address, why); }

bool put_task(void *stream, std::function<void()> task, Record record) {
    Stream *s = (Stream *)stream;
    if (!current->streams.count(s)) return false;
    put(s, [task = std::move(task)] {
        if (!st.hollow) task();
    }, std::move(record));
    return true;
}

} // namespace troupe
