// Cross-entropy over rows of logits, with its gradient where asked for.
//
// A block has a row. It reads it in pieces of 16 bytes, of which each thread keeps the first few in
// registers for the gradient. So the bfloat16 logits of a vocabulary of up to 10,752 are read once. Of a larger one
// the rest is read again, but from the second-level cache, not from memory: rows of 100 KB are under way
// in two blocks to a multiprocessor, 26 MB of an H100's 50. To keep all of such a row would leave room for one
// block, whose multiprocessor would wait for memory and compute by turns.
#include "fault.cuh"
#include "power.cuh"
#include "quad.cuh"
#include "reduce.cuh"

#define LOWEST -0x1p127f // below all logits; a power of 2, so that LOG2_E times it is a number, and exact
#define IGNORE_TARGET -1
#define LN_2 0.69314718055994530942

#define NO_PLACE 0xffffffffu // a row is shorter

#define LOSS_THREADS 448 // at most, to a row: launch_loss.go knows it as lossThreads
#define KEPT 3           // pieces that a thread keeps
#define AHEAD 4          // pieces that it reads before it works on the first of them

// LOSS_FORM(name, of, T) is the form of a kernel for logits of float or bf16. What it has of registers is
// for two blocks of LOSS_THREADS to a multiprocessor.
#define LOSS_FORM(name, of, T)                  \
	BOUNDED_KERNEL(name, LOSS_THREADS, 2) {       \
		if (a.whole) of##_row<T, true>(a);        \
		else of##_row<T, false>(a);               \
	}

// piece is 16 bytes of logits.
struct alignas(16) piece {
	u32 at[4];
};

template <class T> __device__ inline float element(const piece &p, int k);
template <> __device__ inline float element<float>(const piece &p, int k) { return __uint_as_float(p.at[k]); }
template <> __device__ inline float element<bf16>(const piece &p, int k) { return bf16_float(k % 2 ? p.at[k / 2] >> 16 : p.at[k / 2]); }

// piece_of stores numbers as their type is.
__device__ inline piece piece_of(const float (&v)[4]) { return piece{{__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])}}; }
__device__ inline piece piece_of(const float (&v)[8]) { return piece{{bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7])}}; }

// thread_sum is a thread's sum of exponentials, without e^top, where top is the largest argument so far (Milakov,
// Gimelshein: Online normalizer calculation for softmax, 2018). Exponentials are powers of 2, to
// LOG2_E·v − power(top), which is one operation. power rounds: by the same for all of the terms, which of_block
// takes off.
struct thread_sum {
	float top, sum;

	// power is LOG2_E·top as it is subtracted.
	__device__ static float power(float top) { return __fmul_rn(LOG2_E, top); }

	template <int N> __device__ void add(const float (&v)[N]) {
		float higher = v[0];
		UNROLL for (int k = 1; k < N; k++) higher = fmaxf(higher, v[k]);
		if (higher > top) {
			sum *= exp2_of(power(top) - power(higher));
			top = higher;
		}
		const float off = -power(top);
		UNROLL for (int k = 0; k < N; k++) sum += exp2_of(__fmaf_rn(LOG2_E, v[k], off));
	}

	// of_block is log Σ exp of what all threads have added, in all of them.
	__device__ double of_block() const {
		const float top_of_row = block_max(top);
		const double total = block_sum((double)(sum * exp2_of(power(top) - power(top_of_row))));
		return top_of_row + (log(total) + LN_2 * ((double)power(top_of_row) - (double)LOG2_E * top_of_row));
	}
};

// slope makes an element of the gradient, scale·(softmax − onehot), 0 in a row to be ignored. LOG2_E·lse is
// subtracted in two parts: one float32 would lose precision.
struct slope {
	float high, low, scale;
	u32 hit; // place of the target; NO_PLACE: not in the row
	bool ignored;

	__device__ slope(double lse, float scale, i64 hit, bool ignored)
		: high((float)(LOG2_E * lse)), low((float)(LOG2_E * lse - high)), scale(scale), hit(hit < 0 || hit >= NO_PLACE ? NO_PLACE : (u32)hit), ignored(ignored) {}

	__device__ float at(u32 place, float v) const {
		if (ignored) return 0;
		const float g = exp2_of(__fmaf_rn(LOG2_E, v, -high) - low) * scale;
		return place == hit ? g - scale : g;
	}
};

__device__ inline float element_at(float v) { return v; }
__device__ inline float element_at(bf16 bits) { return bf16_float(bits); }

// row_of is a row of logits in the hands of a block. Of one that is whole the addresses, and those of the
// gradient, which is of the same type, are multiples of 16 bytes.
template <class T, bool whole> struct row_of;

template <class T> struct row_of<T, true> {
	static const int in_piece = 16 / sizeof(T);

	const T *logits;
	u32 cols;
	piece kept[KEPT];

	__device__ float one(u32 at) const { return element_at(logits[at]); }

	// place is that of the first element of a thread's piece u; has reports whether all of it is there. The few
	// elements behind the last piece are one each for as many threads.
	__device__ u32 place(int u) const { return (u * blockDim.x + threadIdx.x) * in_piece; }
	__device__ bool has(int u) const { return place(u) + in_piece <= cols; }
	__device__ piece load(int u) const { return *(const piece *)(logits + place(u)); }
	__device__ u32 last() const { return cols / in_piece * in_piece + threadIdx.x; }

	// keep reads what is kept, all of it before any of it is waited for.
	__device__ void keep() {
		UNROLL for (int u = 0; u < KEPT; u++)
			if (has(u)) kept[u] = load(u);
	}

	__device__ static void add(const piece &p, thread_sum &s) {
		float v[in_piece];
		UNROLL for (int k = 0; k < in_piece; k++) v[k] = element<T>(p, k);
		s.add(v);
	}

	__device__ double lse() const {
		thread_sum s = {LOWEST, 0};
		UNROLL for (int u = 0; u < KEPT; u++)
			if (has(u)) add(kept[u], s);
		for (int first = KEPT; has(first); first += AHEAD) {
			piece rest[AHEAD];
			UNROLL for (int u = 0; u < AHEAD; u++)
				if (has(first + u)) rest[u] = load(first + u);
			UNROLL for (int u = 0; u < AHEAD; u++)
				if (has(first + u)) add(rest[u], s);
		}
		if (last() < cols) {
			const float v[1] = {one(last())};
			s.add(v);
		}
		return s.of_block();
	}

	__device__ void write(const piece &p, int u, T *to, const slope &g) const {
		float v[in_piece];
		UNROLL for (int k = 0; k < in_piece; k++) v[k] = g.at(place(u) + k, element<T>(p, k));
		*(piece *)(to + place(u)) = piece_of(v);
	}

	// gradient may be written over the logits.
	__device__ void gradient(float *grad, bool, const slope &g) const {
		T *const to = (T *)grad;
		if (last() < cols) {
			const float v = g.at(last(), one(last()));
			if (sizeof(T) == 2) ((bf16 *)to)[last()] = (bf16)bf16_bits(v);
			else ((float *)to)[last()] = v;
		}
		UNROLL for (int u = 0; u < KEPT; u++)
			if (has(u)) write(kept[u], u, to, g);
		for (int first = KEPT; has(first); first += AHEAD) {
			piece rest[AHEAD];
			UNROLL for (int u = 0; u < AHEAD; u++)
				if (has(first + u)) rest[u] = load(first + u);
			UNROLL for (int u = 0; u < AHEAD; u++)
				if (has(first + u)) write(rest[u], first + u, to, g);
		}
	}
};

// One that is not whole begins anywhere. A thread's elements lie a block's width apart, so that a warp's lie
// side by side, and are read again for the gradient.
template <class T> struct row_of<T, false> {
	const T *logits;
	u32 cols;

	__device__ float one(u32 at) const { return element_at(logits[at]); }
	__device__ void keep() {}

	__device__ double lse() const {
		thread_sum s = {LOWEST, 0};
		for (u32 first = threadIdx.x; first < cols; first += AHEAD * blockDim.x) {
			float v[AHEAD];
			UNROLL for (int k = 0; k < AHEAD; k++) v[k] = first + k * blockDim.x < cols ? one(first + k * blockDim.x) : LOWEST;
			s.add(v);
		}
		return s.of_block();
	}

	__device__ void gradient(float *to, bool half, const slope &g) const {
		for (u32 at = threadIdx.x; at < cols; at += blockDim.x) {
			const float v = g.at(at, one(at));
			if (half) ((bf16 *)to)[at] = (bf16)bf16_bits(v);
			else to[at] = v;
		}
	}
};

// row_at is the block's row of a matrix.
template <class T> __device__ inline const T *row_at(const float *p, i64 stride) { return (const T *)p + (i64)blockIdx.x * stride; }
__device__ inline float *row_at(float *p, i64 stride, bool half) {
	return half ? (float *)((bf16 *)p + (i64)blockIdx.x * stride) : p + (i64)blockIdx.x * stride;
}

struct cross_entropy_args {
	double *losses; // of each row: lse − logit of the target
	double *lse;
	const float *logits;
	const int *targets;
	float *grad; // or 0; may be logits
	i64 *fault;
	i64 cols, stride, grad_stride;
	float scale;
	u32 whole, grad_half, pad; // see row_of; the gradient is bfloat16
};

template <class T, bool whole> __device__ inline void cross_entropy_row(const cross_entropy_args &a) {
	const i64 n = blockIdx.x;
	const int target = a.targets[n];
	if (target != IGNORE_TARGET && (target < 0 || target >= a.cols)) {
		if (threadIdx.x == 0) bad_id(a.fault, n);
		return;
	}
	row_of<T, whole> row = {row_at<T>(a.logits, a.stride), (u32)a.cols};
	row.keep();
	const float hit = target == IGNORE_TARGET ? 0 : row.one(target); // read before the gradient replaces it
	const double lse = row.lse();
	if (threadIdx.x == 0) {
		a.lse[n] = lse;
		a.losses[n] = lse - hit;
	}
	if (a.grad == 0) return;
	row.gradient(row_at(a.grad, a.grad_stride, a.grad_half), a.grad_half, slope(lse, a.scale, target, target == IGNORE_TARGET));
}

typedef cross_entropy_args cross_entropy_bf16_args;

LOSS_FORM(cross_entropy, cross_entropy, float)
LOSS_FORM(cross_entropy_bf16, cross_entropy, bf16)

struct cross_entropy_part_args {
	double *parts; // of each row: lse, and the logit of the target or 0
	const float *logits; // of the ids from first on
	const int *targets;
	i64 *fault;
	i64 cols, stride, first, vocab;
	u32 whole, pad;
};

// A block has a row of a slice of the vocabulary.
template <class T, bool whole> __device__ inline void cross_entropy_part_row(const cross_entropy_part_args &a) {
	const i64 n = blockIdx.x, target = a.targets[n], hit = target - a.first;
	if (target != IGNORE_TARGET && (target < 0 || target >= a.vocab)) {
		if (threadIdx.x == 0) bad_id(a.fault, n);
		return;
	}
	row_of<T, whole> row = {row_at<T>(a.logits, a.stride), (u32)a.cols};
	row.keep();
	const double lse = row.lse();
	if (threadIdx.x != 0) return;
	a.parts[2 * n] = lse;
	a.parts[2 * n + 1] = hit >= 0 && hit < a.cols ? row.one((u32)hit) : 0;
}

typedef cross_entropy_part_args cross_entropy_part_bf16_args;

LOSS_FORM(cross_entropy_part, cross_entropy_part, float)
LOSS_FORM(cross_entropy_part_bf16, cross_entropy_part, bf16)

struct loss_join_args {
	double *losses, *lse;
	const double *parts;
	i64 rows, slices;
};

// loss_join makes lse and loss of each row of the parts of all slices.
KERNEL(loss_join) {
	for (i64 row = GRID_INDEX; row < a.rows; row += GRID_SIZE) {
		double top = a.parts[2 * row], sum = 0, hit = 0;
		for (i64 s = 1; s < a.slices; s++) top = fmax(top, a.parts[2 * (s * a.rows + row)]);
		for (i64 s = 0; s < a.slices; s++) {
			sum += exp(a.parts[2 * (s * a.rows + row)] - top);
			hit += a.parts[2 * (s * a.rows + row) + 1];
		}
		a.lse[row] = top + log(sum);
		a.losses[row] = a.lse[row] - hit;
	}
}

struct cross_entropy_join_args {
	const double *lse;
	const float *logits;
	const int *targets;
	float *grad; // may be logits
	i64 cols, stride, grad_stride, first;
	float scale;
	u32 whole, grad_half, pad;
};

// A block has a row of a slice's gradient.
template <class T, bool whole> __device__ inline void cross_entropy_join_row(const cross_entropy_join_args &a) {
	const i64 n = blockIdx.x;
	const int target = a.targets[n];
	row_of<T, whole> row = {row_at<T>(a.logits, a.stride), (u32)a.cols};
	row.keep();
	row.gradient(row_at(a.grad, a.grad_stride, a.grad_half), a.grad_half, slope(a.lse[n], a.scale, target - a.first, target == IGNORE_TARGET));
}

typedef cross_entropy_join_args cross_entropy_join_bf16_args;

LOSS_FORM(cross_entropy_join, cross_entropy_join, float)
LOSS_FORM(cross_entropy_join_bf16, cross_entropy_join, bf16)

struct loss_stats_args {
	double *stats;
	const double *losses;
	const int *targets;
	i64 rows;
};

// loss_stats adds up the losses and the number of targets. A single block does: rows are
// few beside logits. Each thread takes every so many-th row, in ascending order.
KERNEL(loss_stats) {
	double sums[2] = {0, 0};
	for (i64 row = threadIdx.x; row < a.rows; row += blockDim.x) {
		if (a.targets[row] == IGNORE_TARGET) continue;
		sums[0] += a.losses[row];
		sums[1] += 1;
	}
	block_sums(sums);
	if (threadIdx.x == 0) {
		a.stats[0] = sums[0];
		a.stats[1] = sums[1];
	}
}
