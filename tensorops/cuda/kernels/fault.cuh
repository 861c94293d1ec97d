// What a kernel tells the host of a bad token id.
#ifndef TROUPE_FAULT_CUH
#define TROUPE_FAULT_CUH

#include "common.cuh"

// bad_id says that a row's id is not in the vocabulary. If several rows say so, the host
// learns of one of them.
__device__ inline void bad_id(i64 *fault, i64 row) { *fault = 1LL << 32 | row; }

#endif
