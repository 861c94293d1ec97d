// Attention of documents that share a sequence, and its gradient.
#include "attention_grad.cuh"
#include "attention_tile.cuh"

struct attention_starts_args {
	int *oldest; // of each tile of queries: the first tile of keys that it meets
	int *ends;   // of each tile of keys: where the tiles of queries end that meet it
	const int *starts;
	int tq, tk, window, offset; // as in attention_sizes
	int queries, keys; // of a tile
};

// A block has a sequence. Tiles of queries meet tiles of keys without gaps, whatever order the starts have: up to a
// later tile's first, a tile of queries meets keys too that it does not see. A tile that sees none meets its newest.
KERNEL(attention_starts) {
	const int tiles = (a.tq + a.queries - 1) / a.queries, key_tiles = (a.tk + a.keys - 1) / a.keys;
	int *const oldest = a.oldest + blockIdx.x * tiles;
	const int *const starts = a.starts + (i64)blockIdx.x * a.tq;
	for (int tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
		int first = a.tk;
		for (int query = tile * a.queries; query < a.tq && query < (tile + 1) * a.queries; query++) {
			const int begin = a.window ? query + a.offset + 1 - a.window : 0;
			const int start = starts[query] > begin ? starts[query] : begin;
			first = start < first ? start : first;
		}
		oldest[tile] = first;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		int first = a.tk;
		for (int tile = tiles - 1; tile >= 0; tile--) {
			const int end = (tile + 1) * a.queries < a.tq ? (tile + 1) * a.queries : a.tq;
			const int newest = (end + a.offset < a.tk ? end + a.offset - 1 : a.tk - 1) / a.keys;
			first = oldest[tile] < first ? oldest[tile] : first;
			first = first < 0 ? 0 : first;
			oldest[tile] = first / a.keys < newest ? first / a.keys : newest;
		}
	}
	__syncthreads();
	for (int tile = threadIdx.x; tile < key_tiles; tile += blockDim.x) {
		int end = 0; // tiles of queries before it have an oldest that is not later
		for (int step = tiles; step > 0; step = step > 1 ? (step + 1) / 2 : 0)
			while (end + step <= tiles && oldest[end + step - 1] <= tile) end += step;
		a.ends[blockIdx.x * key_tiles + tile] = end;
	}
}

ATTENTION(attention_64_starts, 1, false, true)
ATTENTION(attention_128_starts, 2, false, true)
ATTENTION(attention_64_capped_starts, 1, true, true)
ATTENTION(attention_128_capped_starts, 2, true, true)

GRADIENT(attention_keys_64_starts, gradient_of_keys, 1, false, true)
GRADIENT(attention_keys_128_starts, gradient_of_keys, 2, false, true)
GRADIENT(attention_queries_64_starts, gradient_of_queries, 1, false, true)
GRADIENT(attention_queries_128_starts, gradient_of_queries, 2, false, true)
GRADIENT(attention_keys_64_capped_starts, gradient_of_keys, 1, true, true)
GRADIENT(attention_keys_128_capped_starts, gradient_of_keys, 2, true, true)
GRADIENT(attention_queries_64_capped_starts, gradient_of_queries, 1, true, true)
GRADIENT(attention_queries_128_capped_starts, gradient_of_queries, 2, true, true)
