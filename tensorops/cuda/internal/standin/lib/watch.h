// What kernels load from the device's memory and store to it, in a stand-in that is built to
// watch (WATCHED): see watch.cpp.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace troupe {

// watched is device memory whose loads and stores are seen; null where nothing is watched.
void *watched(size_t bytes);

// unwatch gives it back; false if it is other memory.
bool unwatch(uint64_t at, size_t bytes);

// watched_launch keeps what was seen since the last one, as the loads and stores of a launch.
void watched_launch(uint64_t number);

// watched_load counts a load that the stand-in makes for a kernel: of an asynchronous copy.
void watched_load(const void *from, size_t bytes);

} // namespace troupe
