// What the kernels of routers have in common.
#ifndef TROUPE_ROUTE_CUH
#define TROUPE_ROUTE_CUH

#include "expert.cuh"

#define SIGMOID_FLOOR 1e-20 // tensorops.SigmoidFloor

__device__ inline int lane_of() { return threadIdx.x % 32; }

// A row whose experts are all −1 is left out of loads, statistics and gradients.
__device__ inline bool left_out(const int *experts, i64 row, int k) { return experts[row * k] == -1; }

#endif
