// Embeddings of tokens, and their gradient.
#include "fault.cuh"
#include "four.cuh"

struct embed_args {
	float *out;
	const float *weight;
	const int *ids;
	i64 *fault;
	i64 cols, vocabulary;
	u32 aligned, halves; // of out and weight
};

// A block has a row.
template <bool mixed> __device__ inline void embed_row(const embed_args &a) {
	const i64 row = blockIdx.x;
	const int id = a.ids[row];
	if (id < 0 || id >= a.vocabulary) {
		if (threadIdx.x == 0) bad_id(a.fault, row);
		return;
	}
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		store4<mixed>(a.out, row * a.cols + j, load4<mixed>(a.weight, id * a.cols + j, left, a.aligned, a.halves & 2), left, a.aligned, a.halves & 1);
	}
}

FORMS(embed, embed_row)

// The gradient of an embedding adds the rows that share a token in ascending order, without
// atomic operations: embed_order brings them together, and embed_grad adds them up.
struct embed_order_args {
	int *order; // rows by token, those of one token in ascending order
	int *count; // at the first place that a token has in order: how many; 0 elsewhere
	const int *ids;
	i64 *fault;
	i64 vocabulary, rows;
};

#define ORDER_TILE 1024

// A thread finds the place of its row by comparing its id with all, which pass through
// shared memory: before it come the rows before with an id that is not larger, and the rows
// after with a smaller one. These are rows² comparisons, of a few instructions each: for the
// thousands of rows of a microbatch less than a sort in several launches.
KERNEL(embed_order) {
	__shared__ int tile[ORDER_TILE];
	const i64 row = GRID_INDEX;
	const int id = row < a.rows ? a.ids[row] : -1;
	int place = 0, earlier = 0, later = 0; // of its row, and how many before and after have the same id
	for (i64 from = 0; from < a.rows; from += ORDER_TILE) {
		const int size = (int)(a.rows - from < ORDER_TILE ? a.rows - from : ORDER_TILE);
		__syncthreads();
		for (int i = threadIdx.x; i < size; i += blockDim.x) tile[i] = a.ids[from + i];
		__syncthreads();
		const int before = row <= from ? 0 : row - from < size ? (int)(row - from) : size;
		for (int i = 0; i < before; i++) {
			place += tile[i] <= id;
			earlier += tile[i] == id;
		}
		for (int i = before; i < size; i++) {
			place += tile[i] < id;
			later += tile[i] == id; // itself too
		}
	}
	if (row >= a.rows) return;
	const bool good = id >= 0 && id < a.vocabulary;
	if (!good) bad_id(a.fault, row);
	a.order[place] = (int)row;
	a.count[place] = good && earlier == 0 ? later : 0;
}

struct embed_grad_args {
	float *grad;
	const float *dy;
	const int *ids, *order, *count;
	i64 cols;
	u32 aligned, halves; // of dy
};

// The blocks of one x have a place in order; they work if a token begins there. A thread
// has four columns. It reads some rows ahead of their sum: a frequent token's are many.
template <bool mixed> __device__ inline void add_token(const embed_grad_args &a) {
	const int ahead = 8;
	const int *rows = a.order + blockIdx.x;
	const int count = a.count[blockIdx.x];
	const i64 j = 4 * ((i64)blockIdx.y * blockDim.x + threadIdx.x), left = a.cols - j;
	if (count == 0 || left <= 0) return;
	float *grad = a.grad + a.ids[rows[0]] * a.cols + j;
	four sum = load4(grad, left, a.aligned);
	for (int first = 0; first < count; first += ahead) {
		four d[ahead];
		UNROLL for (int i = 0; i < ahead; i++)
			if (first + i < count) d[i] = load4<mixed>(a.dy, rows[first + i] * a.cols + j, left, a.aligned, a.halves);
		UNROLL for (int i = 0; i < ahead; i++)
			for (int k = 0; k < 4; k++)
				if (first + i < count) sum.at[k] += d[i].at[k];
	}
	store4(grad, sum, left, a.aligned);
}

FORMS(embed_grad, add_token)
