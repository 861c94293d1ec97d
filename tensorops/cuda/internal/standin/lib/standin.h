// What the stand-in's libraries share of the driver's state. Whoever calls these holds
// what locked returned.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <mutex>
#include <string>

namespace troupe {

std::unique_lock<std::mutex> locked();

// enter_call counts a call and says what it has to fail with, before it does anything.
int enter_call(const char *name);

// usable reports whether the calling thread has a context that has not failed.
bool usable();

// on_device reports whether so many bytes lie in an allocation of the device's whose context the thread has.
bool on_device(uint64_t at, size_t bytes);

// put_task gives a stream something to do; false if there is no such stream.
bool put_task(void *stream, std::function<void()> task);

// fail_context makes the context useless, as a failed kernel does.
void fail_context(const std::string &why);

// ---- of cublaslt.cpp, for the hooks

// blas_left counts handles, descriptors, layouts and preferences that are not given back.
long long blas_left();

void reset_blas();

} // namespace troupe
