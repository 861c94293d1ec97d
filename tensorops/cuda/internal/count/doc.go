// Package count counts what a step does on a GPU, without one: which kernels and copies are
// launched, how many bytes each has to move from and to the device's memory, how many floating-point
// operations it does, how often the device runs out of work before the host has given it more, and
// how much memory there is at most.
//
// The stand-in for CUDA keeps a log of what streams are given (log.go). What a kernel moves is
// known from its name and its argument, by the table of kernels_*.go: a kernel that is not there is
// an error. The table is held to what the emulated kernels load and store (cover.go).
//
// # What is counted, and what is not
//
// An operand counts as often as it has to come from memory or go there: once, or twice where a
// block goes through a row a second time that is longer than the cache near it (CacheBytes).
// That is what caches cannot spare. What they fail to spare is not counted: a product's and an
// attention's tiles are read by many blocks, and count as read once, as the library's would.
// Floating-point operations are those of products and of attention; element-wise work is bound by
// its bytes. cuBLASLt's own kernels are not seen, only the calls of the library.
//
// # How far the table is to be trusted
//
// The emulated kernels are compiled with the compiler's calls for finding data races, of which there is
// one before each load and store (standin/lib/watch.cpp). In every launch of the operations' table of
// cases, each byte of an operand has to be touched, as often as the table says, and no other byte of
// the device's memory. That is so for the shapes of those cases; that it holds for larger ones
// follows from nothing but the kernels' loops. How often an operand passes from memory (Times)
// and how many floating-point operations there are is the table's word; the sum of the products' is held to the
// model's arithmetic (TestStep). Whether loads coalesce, and what caches lose, is not seen.
//
// A turnaround is counted on a device that is slower than the host: it continues only where
// a thread of the host's waits for it and nothing else happens in the process, to the end of what is
// waited for. When it has nothing left by then and is given more, it has been idle. A host that is kept
// from its work looks like one that waits: so the least of several steps counts.
//
// Times that are made of these counts (Estimate) are estimates: nothing here ran on a GPU.
//
// The package is for tests: it knows the kernels' arguments, and nothing of who launches them.
package count
