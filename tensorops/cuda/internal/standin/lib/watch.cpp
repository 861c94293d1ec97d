// Watching: the compiler puts a call before each load and store of a kernel, those that it has
// for finding data races (-fsanitize=thread). Here they count, for each byte of the device's
// memory, how often the launch under way has loaded and stored it. All else, such as shared
// memory and the stacks of threads, lies elsewhere and is not counted.
#include "watch.h"

#ifndef WATCHED

namespace troupe {
void *watched(size_t) { return nullptr; }
bool unwatch(uint64_t, size_t) { return false; }
void watched_launch(uint64_t) {}
void watched_load(const void *, size_t) {}
} // namespace troupe

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace {

// All device memory lies in one region, of which no part is used twice; beside it lie the
// counts of each of its bytes.
const size_t region_bytes = (size_t)1 << 38, page = 4096;
char *region = nullptr;
uint16_t *counts[2] = {}; // loads and stores
unsigned char *touched = nullptr; // by page
std::vector<size_t> pages;        // those that are
size_t used = 0;

// Run are bytes that lie side by side and were loaded, or stored, equally often.
struct Run {
    uint64_t at, bytes, times;
};
struct Launch {
    std::vector<Run> runs[2];
};
std::mutex mu; // guards launches, which the tests read
std::map<uint64_t, Launch> launches;

void *reserve(size_t bytes) {
    void *m = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) {
        perror("stand-in for CUDA: memory to watch");
        abort();
    }
    return m;
}

inline void see(const void *p, size_t bytes, int stored) {
    const size_t at = (size_t)((const char *)p - region);
    if (at >= used) return;
    for (size_t i = at; i < at + bytes; i++) {
        if (!touched[i / page]) {
            touched[i / page] = 1;
            pages.push_back(i / page);
        }
        if (counts[stored][i] < UINT16_MAX) counts[stored][i]++;
    }
}

} // namespace

namespace troupe {

void *watched(size_t bytes) {
    if (!region) {
        region = (char *)reserve(region_bytes);
        touched = (unsigned char *)reserve(region_bytes / page);
        for (auto &c : counts) c = (uint16_t *)reserve(region_bytes * sizeof *c);
    }
    if (bytes > region_bytes - used) return nullptr;
    void *m = region + used;
    used += (bytes + 2 * page - 1) / page * page; // with some bytes between
    return m;
}

bool unwatch(uint64_t at, size_t bytes) {
    if (!region || at < (uint64_t)region || at >= (uint64_t)region + used) return false;
    madvise((void *)at, (bytes + page - 1) / page * page, MADV_DONTNEED);
    return true;
}

void watched_launch(uint64_t number) {
    std::sort(pages.begin(), pages.end());
    Launch l;
    for (int stored = 0; stored < 2; stored++)
        for (size_t p : pages)
            for (size_t i = p * page; i < (p + 1) * page; i++) {
                const uint64_t times = counts[stored][i], at = (uint64_t)region + i;
                if (!times) continue;
                std::vector<Run> &runs = l.runs[stored];
                if (!runs.empty() && runs.back().at + runs.back().bytes == at && runs.back().times == times) runs.back().bytes++;
                else runs.push_back({at, 1, times});
            }
    for (size_t p : pages) {
        touched[p] = 0;
        for (auto &c : counts) memset(c + p * page, 0, page * sizeof *c);
    }
    pages.clear();
    std::lock_guard<std::mutex> lock(mu);
    launches[number] = std::move(l);
}

void watched_load(const void *from, size_t bytes) { see(from, bytes, 0); }

} // namespace troupe

extern "C" {

// How many runs of bytes a launch has loaded (stored: 0) or stored (1).
size_t troupe_standin_runs(uint64_t launch, int stored) {
    std::lock_guard<std::mutex> lock(mu);
    return launches[launch].runs[stored].size();
}

// Copies them: address, bytes, and how often.
void troupe_standin_take_runs(uint64_t launch, int stored, uint64_t *to) {
    std::lock_guard<std::mutex> lock(mu);
    const auto &runs = launches[launch].runs[stored];
    memcpy(to, runs.data(), runs.size() * sizeof runs[0]);
    if (stored) launches.erase(launch);
}

// The compiler's calls.
#define SEEN(bytes)                                                                   \
    void __tsan_read##bytes(void *p) { see(p, bytes, 0); }                            \
    void __tsan_write##bytes(void *p) { see(p, bytes, 1); }                           \
    void __tsan_unaligned_read##bytes(void *p) { see(p, bytes, 0); }                  \
    void __tsan_unaligned_write##bytes(void *p) { see(p, bytes, 1); }                 \
    void __tsan_volatile_read##bytes(void *p) { see(p, bytes, 0); }                   \
    void __tsan_volatile_write##bytes(void *p) { see(p, bytes, 1); }                  \
    void __tsan_read_write##bytes(void *p) { see(p, bytes, 0), see(p, bytes, 1); }
SEEN(1)
SEEN(2)
SEEN(4)
SEEN(8)
SEEN(16)
void __tsan_read_range(void *p, size_t bytes) { see(p, bytes, 0); }
void __tsan_write_range(void *p, size_t bytes) { see(p, bytes, 1); }
// Where clang has copied or set memory by a call.
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    see(from, bytes, 0), see(to, bytes, 1);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    see(from, bytes, 0), see(to, bytes, 1);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    see(to, bytes, 1);
    return memset(to, value, bytes);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
}

#endif
