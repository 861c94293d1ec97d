// Routers of experts: tensorops/list_route.go has the formulas. A warp has a token. Scores are computed in float64, as on
// the CPU's device, since a choice depends on the last bit of a score; beside the experts' products that is little.
#include "route.cuh"

#define LOWEST __uint_as_float(0xff800000u) // −∞

// pick is one of several numbers by its rank; at < 0: none.
struct pick {
	float rank;
	int at;
};

// before reports whether p comes before q: the larger rank does, of equal ones the lower number, and NaN comes last.
__device__ inline bool before(pick p, pick q) {
	const bool none_p = p.rank != p.rank, none_q = q.rank != q.rank;
	if (none_p || none_q) return none_p == none_q ? p.at < q.at : none_q;
	return p.rank > q.rank || (p.rank == q.rank && p.at < q.at);
}

__device__ inline pick better(pick p, pick q) { return q.at >= 0 && (p.at < 0 || before(q, p)) ? q : p; }

// next_pick is the first of n numbers that comes after last. is(e, rank) reports whether number e counts, and its rank.
template <class Is> __device__ inline pick next_pick(int n, pick last, Is is) {
	pick best = {0, -1};
	for (int e = lane_of(); e < n; e += 32) {
		pick p = {0, e};
		if (is(e, p.rank) && (last.at < 0 || before(last, p))) best = better(best, p);
	}
	for (int apart = 16; apart > 0; apart /= 2) {
		const pick other = {__shfl_xor_sync(ALL_LANES, best.rank, apart), __shfl_xor_sync(ALL_LANES, best.at, apart)};
		best = better(best, other);
	}
	return best;
}

// picked is the last of the first k of n numbers.
template <class Is> __device__ inline pick picked(int n, int k, Is is) {
	pick last = {0, -1};
	for (int j = 0; j < k; j++) last = next_pick(n, last, is);
	return last;
}

// top_of is the largest of a row; NaN if one is.
__device__ inline float top_of(const float *row, int n) {
	float top = LOWEST;
	for (int e = lane_of(); e < n; e += 32)
		if (row[e] > top || row[e] != row[e]) top = row[e];
	for (int apart = 16; apart > 0; apart /= 2) {
		const float other = __shfl_xor_sync(ALL_LANES, top, apart);
		if (other > top || other != other) top = other;
	}
	return top;
}

// log_sum is the logarithm of the sum of a row's exponentials.
__device__ inline double log_sum(const float *row, int n) {
	const double top = top_of(row, n);
	double sum = 0;
	for (int e = lane_of(); e < n; e += 32) sum += exp(row[e] - top);
	return top + log(warp_sum(sum));
}

struct route_choose_args {
	float *scores, *weights;
	int *experts;
	const float *logits, *bias; // scores may be logits; bias may be 0
	float *groups;              // [rows][group_count], for the groups' sums
	double factor;
	i64 rows;
	int width, k; // experts, and those of a row
	int group_count, top_groups; // 0: no groups
	int sigmoids, renormalize;
};

// route_choose makes the scores of a row, and its chosen experts in ascending order with their weights.
KERNEL(route_choose) {
	EACH_ROW(n, a.rows) {
		const float *const logits = a.logits + n * a.width;
		float *const scores = a.scores + n * a.width;
		if (a.sigmoids) {
			for (int e = lane_of(); e < a.width; e += 32) scores[e] = (float)sigmoid(logits[e]);
		} else {
			const double top = top_of(logits, a.width);
			double sum = 0;
			for (int e = lane_of(); e < a.width; e += 32) {
				const double v = exp(logits[e] - top);
				sum += v;
				scores[e] = (float)v;
			}
			sum = warp_sum(sum);
			for (int e = lane_of(); e < a.width; e += 32) scores[e] = (float)(scores[e] / sum);
		}
		__syncwarp();

		const int size = a.group_count > 0 ? a.width / a.group_count : a.width;
		float *const sums = a.groups + n * a.group_count;
		pick last_group = {0, -1};
		const auto rank_of = [&](int e) { return a.bias != 0 ? __fadd_rn(scores[e], a.bias[e]) : scores[e]; };
		const auto counts = [&](int e, float &rank) {
			rank = rank_of(e);
			if (a.group_count == 0) return true;
			const pick group = {sums[e / size], e / size};
			return !before(last_group, group);
		};
		if (a.group_count > 0) { // a group counts as the sum of its two best
			for (int g = lane_of(); g < a.group_count; g += 32) {
				pick first = {0, -1}, second = {0, -1};
				for (int i = 0; i < size; i++) {
					const pick p = {rank_of(g * size + i), i};
					if (first.at < 0 || before(p, first)) second = first, first = p;
					else second = better(second, p);
				}
				sums[g] = __fadd_rn(first.rank, second.rank);
			}
			__syncwarp();
			last_group = picked(a.group_count, a.top_groups, [&](int g, float &rank) {
				rank = sums[g];
				return true;
			});
		}
		const pick last = picked(a.width, a.k, counts);
		const auto chosen = [&](int e) {
			pick p = {0, e};
			return counts(e, p.rank) && !before(last, p);
		};
		double factor = a.factor;
		if (a.renormalize) {
			double sum = 0;
			for (int e = lane_of(); e < a.width; e += 32)
				if (chosen(e)) sum += scores[e];
			factor /= warp_sum(sum) + (a.sigmoids ? SIGMOID_FLOOR : 0);
		}
		i64 to = n * a.k;
		for (int first = 0; first < a.width; first += 32) {
			const int e = first + lane_of();
			const bool is = e < a.width && chosen(e);
			const u32 all = __ballot_sync(ALL_LANES, is);
			const i64 at = to + __popc(all & ((1u << lane_of()) - 1));
			if (is) {
				a.experts[at] = e;
				a.weights[at] = (float)(scores[e] * factor);
			}
			to += __popc(all);
		}
	}
}

// The rows of each expert are sorted by counting: pairs of a token and an expert, in chunks, each of which counts its own.
#define ROUTE_CHUNK 1024  // pairs: launch_route.go knows it as routeChunk
#define ROUTE_THREADS 256 // of a block: launch_route.go knows it as routeThreads

// route_chunk is the chunk of a block.
struct route_chunk {
	i64 first;
	int n;

	__device__ route_chunk(i64 pairs) : first((i64)blockIdx.x * ROUTE_CHUNK) {
		n = (int)(pairs - first < ROUTE_CHUNK ? pairs - first : ROUTE_CHUNK);
	}

	__device__ void read(int *experts, const int *from) const {
		for (int i = threadIdx.x; i < n; i += blockDim.x) experts[i] = from[first + i];
		__syncthreads();
	}
};

struct route_chunks_args {
	int *counts; // [chunks][width]
	const int *experts;
	i64 pairs;
	int width, pad;
};

KERNEL(route_chunks) {
	__shared__ int experts[ROUTE_CHUNK];
	const route_chunk chunk(a.pairs);
	chunk.read(experts, a.experts);
	for (int e = threadIdx.x; e < a.width; e += blockDim.x) {
		int count = 0;
		for (int i = 0; i < chunk.n; i++) count += experts[i] == e;
		a.counts[(i64)blockIdx.x * a.width + e] = count;
	}
}

struct route_offsets_args {
	int *offsets, *counts;
	i64 chunks;
	int width, pad;
};

// route_offsets, a single block, replaces the counts of a chunk by those of the chunks before it.
KERNEL(route_offsets) {
	__shared__ int sums[ROUTE_THREADS];
	int before = 0; // of the experts before
	for (int first = 0; first < a.width; first += blockDim.x) {
		const int e = first + threadIdx.x;
		int total = 0;
		if (e < a.width) {
			for (i64 c = 0; c < a.chunks; c++) {
				const int count = a.counts[c * a.width + e];
				a.counts[c * a.width + e] = total;
				total += count;
			}
		}
		const int sum = running_sum(sums, total);
		if (e < a.width) a.offsets[e + 1] = before + sum;
		before += sums[blockDim.x - 1];
		__syncthreads();
	}
	if (threadIdx.x == 0) a.offsets[0] = 0;
}

struct route_places_args {
	int *places;
	const int *experts, *offsets, *counts;
	i64 pairs;
	int width, pad;
};

KERNEL(route_places) {
	__shared__ int experts[ROUTE_CHUNK];
	const route_chunk chunk(a.pairs);
	chunk.read(experts, a.experts);
	for (int i = threadIdx.x; i < chunk.n; i += blockDim.x) {
		const int e = experts[i];
		int place = a.offsets[e] + a.counts[(i64)blockIdx.x * a.width + e];
		for (int j = 0; j < i; j++) place += experts[j] == e;
		a.places[chunk.first + i] = place;
	}
}

struct route_loads_args {
	int *loads; // [runs][width], which was 0
	const int *experts;
	route_fault fault;
	i64 pairs, of_run;
	int width, pad;
};

// route_loads counts the rows of each expert in each run of rows. Sums of whole numbers are the same in every order.
KERNEL(route_loads) {
	for (i64 i = GRID_INDEX; i < a.pairs; i += GRID_SIZE) {
		if (a.experts[i] == -1) continue;
		const i64 e = one_of(a.experts, i, a.width, a.fault);
		if (e >= 0) atomicAdd(&a.loads[i / a.of_run * a.width + e], 1);
	}
}

// load_of is how many rows of a run an expert has: on all ranks, if there are others.
__device__ inline double load_of(const int *loads, const float *of_all, i64 at) { return of_all != 0 ? of_all[at] : loads[at]; }

struct route_grad_args {
	float *dlogits;
	const float *dweights, *scores;
	const int *experts, *loads; // loads: of this rank, or 0 without a balance loss
	const float *of_all;        // the loads of all ranks, or 0
	const float *logits;        // or 0
	route_fault fault;
	double factor, balance, z_loss;
	i64 rows, of_run; // of_run: rows
	int width, k, sigmoids, renormalize;
};

KERNEL(route_grad) {
	EACH_ROW(n, a.rows) {
		const float *const scores = a.scores + n * a.width, *const dw = a.dweights + n * a.k;
		const int *const experts = a.experts + n * a.k;
		if (left_out(a.experts, n, a.k)) {
			for (int e = lane_of(); e < a.width; e += 32) a.dlogits[n * a.width + e] = 0;
			continue;
		}
		const i64 run = n / a.of_run * a.width;
		double factor = a.factor, mean = 0;
		if (a.renormalize) {
			double total = 0;
			for (int j = lane_of(); j < a.k; j += 32) {
				const i64 e = one_of(experts, j, a.width, a.fault);
				if (e < 0) continue;
				total += scores[e];
				mean += (double)dw[j] * scores[e];
			}
			total = warp_sum(total) + (a.sigmoids ? SIGMOID_FLOOR : 0);
			mean = warp_sum(mean) / total;
			factor /= total;
		}
		double share = 1, level = 0; // what the gradient of a share is divided by, and the mean load of shares: of sigmoids
		if (a.sigmoids && a.balance != 0) {
			share = 0;
			for (int e = lane_of(); e < a.width; e += 32) {
				share += scores[e];
				level += load_of(a.loads, a.of_all, run + e) * scores[e];
			}
			share = warp_sum(share) + SIGMOID_FLOOR;
			level = warp_sum(level) / share;
		}
		// of is the gradient of a score.
		const auto of = [&](int e) {
			double d = 0;
			if (a.balance != 0) d = a.balance * (load_of(a.loads, a.of_all, run + e) - level) / share;
			int j = 0;
			for (int end = a.k; j < end;) { // experts ascend
				const int middle = (j + end) / 2;
				if (experts[middle] < e) j = middle + 1;
				else end = middle;
			}
			return j < a.k && experts[j] == e ? d + factor * (dw[j] - mean) : d;
		};
		double inner = 0;
		if (!a.sigmoids) {
			for (int e = lane_of(); e < a.width; e += 32) inner += of(e) * scores[e];
			inner = warp_sum(inner);
		}
		const float *const logits = a.logits + n * a.width;
		const double lse = a.logits != 0 ? log_sum(logits, a.width) : 0;
		for (int e = lane_of(); e < a.width; e += 32) {
			const double s = scores[e];
			double d = a.sigmoids ? of(e) * s * (1 - s) : s * (of(e) - inner);
			if (a.logits != 0) d += 2 * a.z_loss * lse * exp(logits[e] - lse);
			a.dlogits[n * a.width + e] = (float)d;
		}
	}
}

#define ROUTE_ROWS 64   // that a block of route_sums has: launch_route.go knows it as routeRows
#define ROUTE_COUNTS 4  // statistics before the counts: tensorops.RouteCounts

struct route_sums_args {
	double *partial; // [runs·blocks of a run][2·width + 1]: shares, entropies, and the squares of the logarithms
	const float *scores, *logits; // logits may be 0
	const int *experts;
	i64 of_run; // rows
	int width, k, sigmoids, pad;
};

// A block has some rows of a run. A thread has an expert, and adds its shares row by row.
KERNEL(route_sums) {
	__shared__ double divisors[ROUTE_ROWS], squares[ROUTE_ROWS];
	const i64 first = (i64)blockIdx.x * ROUTE_ROWS, row0 = (i64)blockIdx.y * a.of_run + first;
	const int rows = (int)(a.of_run - first < ROUTE_ROWS ? a.of_run - first : ROUTE_ROWS);
	for (int r = threadIdx.x / 32; r < rows; r += blockDim.x / 32) {
		double divisor = 1, lse = 0;
		const bool out = left_out(a.experts, row0 + r, a.k);
		if (out) {
			divisor = __uint_as_float(0x7f800000u); // infinite: shares of 0
		} else if (a.sigmoids) {
			divisor = 0;
			for (int e = lane_of(); e < a.width; e += 32) divisor += a.scores[(row0 + r) * a.width + e];
			divisor = warp_sum(divisor) + SIGMOID_FLOOR;
		}
		if (a.logits != 0 && !out) lse = log_sum(a.logits + (row0 + r) * a.width, a.width);
		if (lane_of() == 0) divisors[r] = divisor, squares[r] = lse * lse;
	}
	__syncthreads();
	double *const to = a.partial + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * (2 * a.width + 1);
	for (int e = threadIdx.x; e < a.width; e += blockDim.x) {
		double shares = 0, entropy = 0;
		for (int r = 0; r < rows; r++) {
			const double s = a.scores[(row0 + r) * a.width + e] / divisors[r];
			shares += s;
			if (s > 0) entropy -= s * log(s);
		}
		to[e] = shares, to[a.width + e] = entropy;
	}
	if (threadIdx.x == 0) {
		double sum = 0;
		for (int r = 0; r < rows; r++) sum += squares[r];
		to[2 * a.width] = sum;
	}
}

struct route_stats_args {
	double *stats;
	const double *partial;
	const int *loads;    // of this rank
	const float *of_all; // the loads of all ranks, or 0
	i64 blocks;          // of a run
	int runs, width, k, pad;
};

// route_stats, a single block, adds what route_sums has found.
KERNEL(route_stats) {
	const i64 each = 2 * a.width + 1;
	double sums[3] = {0, 0, 0}; // balance, entropy, z
	double rows = 0;
	for (i64 run = 0; run < a.runs; run++) {
		double pairs[2] = {0, 0}; // of this rank and of all of them
		for (int e = threadIdx.x; e < a.width; e += blockDim.x) {
			const i64 at = run * a.width + e;
			a.stats[ROUTE_COUNTS + e] += a.loads[at];
			pairs[0] += a.loads[at], pairs[1] += load_of(a.loads, a.of_all, at);
		}
		block_sums(pairs);
		rows += pairs[0] / a.k;
		if (pairs[1] == 0) continue;
		for (int e = threadIdx.x; e < a.width; e += blockDim.x) {
			double shares = 0;
			for (i64 b = run * a.blocks; b < (run + 1) * a.blocks; b++) {
				shares += a.partial[b * each + e];
				sums[1] += a.partial[b * each + a.width + e];
			}
			sums[0] += a.width * load_of(a.loads, a.of_all, run * a.width + e) * shares / (pairs[1] / a.k);
		}
	}
	for (i64 b = threadIdx.x; b < a.runs * a.blocks; b += blockDim.x) sums[2] += a.partial[b * each + 2 * a.width];
	block_sums(sums);
	if (threadIdx.x != 0) return;
	a.stats[0] += rows;
	for (int i = 0; i < 3; i++) a.stats[1 + i] += sums[i];
}

struct route_count_args {
	float *counts;
	const int *loads;
	i64 n;
};

KERNEL(route_count) {
	for (i64 i = GRID_INDEX; i < a.n; i += GRID_SIZE) a.counts[i] += a.loads[i];
}

struct route_bias_args {
	float *bias;
	const float *counts;
	double rate;
	i64 experts;
};

// route_bias, a single block, moves the biases of experts with more or fewer rows than the mean.
KERNEL(route_bias) {
	double sum = 0;
	for (i64 e = threadIdx.x; e < a.experts; e += blockDim.x) sum += a.counts[e];
	const double mean = block_sum(sum) / a.experts;
	for (i64 e = threadIdx.x; e < a.experts; e += blockDim.x) {
		if (a.counts[e] < mean) a.bias[e] = (float)(a.bias[e] + a.rate);
		if (a.counts[e] > mean) a.bias[e] = (float)(a.bias[e] - a.rate);
	}
}
