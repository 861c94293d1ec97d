// What the stand-in's libraries share of the driver's state. Whoever calls these holds
// what locked returned.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// Record is what the log says of something that a stream does: what it is, how many words
// follow, and those.
typedef std::vector<uint64_t> Record;

// What records are. Package count reads them.
enum : uint64_t {
    log_kernel = 1,  // number, kernel, grid x, y, z, threads of a block, bytes of the argument, argument
    log_product = 2, // M, N, K, and of each operand: address, bytes, whether it is read, whether it is written
    log_in = 3,      // to, bytes, and the bytes if they are few
    log_out = 4,     // from, bytes
    log_within = 5,  // to, from, bytes
    log_set = 6,     // to, bytes
    log_graph = 7,   // how many records follow that are its work
    log_idle = 8,    // the device had nothing left to do when it was given what follows
};

// The most bytes of a copy to the device that are in the log.
const size_t most_logged = 1 << 16;

std::unique_lock<std::mutex> locked();

// enter_call counts a call and says what it has to fail with, before it does anything.
int enter_call(const char *name);

// usable reports whether the calling thread has a context that has not failed.
bool usable();

// on_device reports whether so many bytes lie in an allocation of the device's whose context the thread has.
bool on_device(uint64_t at, size_t bytes);

// put_task gives a stream something to do; false if there is no such stream.
bool put_task(void *stream, std::function<void()> task, Record record);

// fail_context makes the context useless, as a failed kernel does.
void fail_context(const std::string &why);

// ---- of cublaslt.cpp, for the hooks

// blas_left counts handles, descriptors, layouts and preferences that are not given back.
long long blas_left();

void reset_blas();

} // namespace troupe
