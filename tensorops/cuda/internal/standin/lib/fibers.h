// Runs kernels: a block's threads are fibers of the calling thread.
#ifndef TROUPE_FIBERS_H
#define TROUPE_FIBERS_H

#include <stddef.h>

#include <string>

namespace troupe {

struct Kernel {
    std::string file; // the source's name without its folder
    std::string name;
    size_t argument; // bytes
    void (*run)(const void *argument);
};

// The kernel of a name in a file; null if there is none.
const Kernel *find_kernel(const std::string &file, const std::string &name);

// The file that has a kernel of a name; empty if none or several have.
std::string file_of_kernel(const std::string &name);

struct Size {
    unsigned x, y, z;
};

// The most dynamic shared memory of a block: an H100's.
const size_t max_dynamic = 232448;

// Runs a whole grid, with so many bytes of dynamic shared memory for a block, and returns what
// went wrong, empty if nothing did.
std::string run_kernel(const Kernel &k, Size grid, Size block, size_t shared, const void *argument);

} // namespace troupe

#endif
