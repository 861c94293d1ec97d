// Learned positions: a row's position is its place in its period.
#include "four.cuh"

struct add_positions_args {
	float *out;
	const float *x, *weight; // weight of the first position, or with starts all of it
	const int *starts; // of each row's document, or none
	i64 period, cols;
	i64 first, rows; // with starts: the first position, and the rows of weight
	u32 aligned, halves; // of out, x and weight
};

// position_of is the row of a weight that a row has, given where its document starts.
__device__ inline i64 position_of(i64 row, i64 start, i64 period, i64 first, i64 rows) {
	const i64 position = first + row % period - start;
	return position < 0 ? 0 : position < rows ? position : rows - 1;
}

// A block has a row, and out may be x.
template <bool mixed> __device__ inline void add_position(const add_positions_args &a) {
	const i64 row = (i64)blockIdx.x * a.cols;
	const i64 position = (a.starts ? position_of(blockIdx.x, a.starts[blockIdx.x], a.period, a.first, a.rows) : blockIdx.x % a.period) * a.cols;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		four v = load4<mixed>(a.x, row + j, left, a.aligned, a.halves & 2);
		const four w = load4<mixed>(a.weight, position + j, left, a.aligned, a.halves & 4);
		for (int k = 0; k < 4; k++) v.at[k] += w.at[k];
		store4<mixed>(a.out, row + j, v, left, a.aligned, a.halves & 1);
	}
}

FORMS(add_positions, add_position)

// position_ids finds the position of each row, so that embed_grad can add up the rows of each.
struct position_ids_args {
	int *ids;
	const int *starts;
	i64 period, first, rows, count; // rows of the gradient, and of what is added
};

KERNEL(position_ids) {
	for (i64 row = GRID_INDEX; row < a.count; row += GRID_SIZE) a.ids[row] = (int)position_of(row, a.starts[row], a.period, a.first, a.rows);
}

struct positions_grad_args {
	float *grad; // of the first position
	const float *dy;
	i64 period, cols;
	i64 rows;
	u32 aligned, halves; // of dy
};

// A block has a position, of which it adds the rows in ascending order.
template <bool mixed> __device__ inline void position_grad(const positions_grad_args &a) {
	float *grad = a.grad + blockIdx.x * a.cols;
	EACH_FOUR_OF_ROW(j, a.cols) {
		const i64 left = a.cols - j;
		four sum = load4(grad + j, left, a.aligned);
		for (i64 row = blockIdx.x; row < a.rows; row += a.period) {
			const four d = load4<mixed>(a.dy, row * a.cols + j, left, a.aligned, a.halves);
			for (int k = 0; k < 4; k++) sum.at[k] += d.at[k];
		}
		store4(grad + j, sum, left, a.aligned);
	}
}

FORMS(positions_grad, position_grad)
