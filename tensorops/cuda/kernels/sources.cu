// Where the rows of each source begin at the experts of a rank: tensorops/list_exchange.go has the table of offsets.
#include "expert.cuh"

#define SOURCE_THREADS 256 // launch_exchange.go knows it as sourceThreads

struct source_offsets_args {
	int *offsets;     // of the rank: each of its experts, and of each all sources; then the end
	const int *table; // [sources][experts + 1]
	route_fault fault;
	int sources, experts, rank, pad;
};

// source_offsets, a single block, writes nothing if a source's rows do not ascend from 0, or all sources together have more
// rows than an offset can say.
KERNEL(source_offsets) {
	__shared__ int sums[SOURCE_THREADS], bad;
	const int width = a.experts + 1, held = a.experts / a.sources;
	if (threadIdx.x == 0) bad = 0;
	__syncthreads();
	i64 rows = 0;
	for (i64 i = threadIdx.x; i < (i64)a.sources * width; i += blockDim.x) {
		const int column = (int)(i % width), at = a.table[i];
		if (column == 0 ? at != 0 : at < a.table[i - 1]) {
			bad = 1;
			bad_route(a.fault, i);
		}
		if (column == a.experts) rows += at;
	}
	rows = block_sum(rows);
	if (bad) return;
	if (rows > 0x7fffffff) {
		if (threadIdx.x == 0) bad_route(a.fault, 0);
		return;
	}
	int before = 0;
	for (int first = 0; first < a.experts; first += blockDim.x) {
		const int i = first + threadIdx.x;
		int own = 0;
		if (i < a.experts) {
			const int *const of = a.table + (i64)(i % a.sources) * width + a.rank * held + i / a.sources;
			own = of[1] - of[0];
		}
		const int sum = running_sum(sums, own);
		if (i < a.experts) a.offsets[i] = before + sum - own;
		before += sums[blockDim.x - 1];
		__syncthreads();
	}
	if (threadIdx.x == 0) a.offsets[a.experts] = before;
}
