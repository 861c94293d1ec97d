// Products of the rows of several experts, whose numbers only the device knows: what their forms have in common.
#ifndef TROUPE_GROUPED_CUH
#define TROUPE_GROUPED_CUH

#include "expert.cuh"
#include "matmul.cuh"

struct grouped_args {
	matmul_args whole; // A and C have the rows of all experts; B and the bias are those of the first one
	const int *tiles;  // of rows, three numbers each: the expert or −1, the first row, and the end of the expert's rows
	i64 each;          // elements from the matrix of an expert to that of the next
};

// tile_of makes the product of a block's tile of rows; false: there is none.
__device__ inline bool tile_of(const grouped_args &a, matmul_args &m) {
	const int *const tile = a.tiles + 3 * (i64)blockIdx.x;
	const i64 expert = tile[0], first = tile[1];
	if (expert < 0) return false;
	m = a.whole;
	m.m = tile[2] - tile[1];
	m.a += first * m.a_stride;
	m.c += first * m.c_stride;
	m.b += expert * a.each;
	if (m.bias) m.bias += expert * m.n;
	return true;
}

struct grouped_weight_args {
	matmul_args whole; // A and B have the rows of all experts, C is the gradient of the first one's matrix
	const int *offsets;
	route_fault fault;
	i64 each, rows;
	int experts, parts, source; // parts of each expert's rows, of which one counts
	int all; // every row has an expert
};

// weights_of makes the product of a block's expert; false: there is none.
__device__ inline bool weights_of(const grouped_weight_args &a, matmul_args &m) {
	const i64 expert = blockIdx.y, at = expert * a.parts + a.source;
	const i64 first = a.offsets[at], end = a.offsets[at + 1];
	const bool begins = at > 0 || first == 0, ends = !a.all || expert < a.experts - 1 || end == a.rows;
	if (first < 0 || first > end || end > a.rows || !begins || !ends) {
		if (threadIdx.x == 0) bad_route(a.fault, expert);
		return false;
	}
	if (first == end) return false;
	m = a.whole;
	m.last = end - first;
	m.a += first * m.a_stride;
	m.b += first * m.b_stride;
	m.c += expert * a.each;
	return true;
}

#endif
