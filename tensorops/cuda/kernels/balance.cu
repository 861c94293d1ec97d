// The balance loss of a router's rows with given loads: tensorops/list_loads.go has the formulas. A warp has a row, and computes in
// float64 as the other kernels of routers.
#include "route.cuh"

struct balance_rows_args {
	float *dlogits;
	double *losses; // of each row, or 0
	const float *scores, *loads;
	const int *experts;
	double weight;
	i64 rows;
	int width, k, sigmoids, pad;
};

KERNEL(balance_rows) {
	double total = 0; // of whole numbers: the same in every order
	for (int e = lane_of(); e < a.width; e += 32) total += a.loads[e];
	total = warp_sum(total);
	// of is the gradient of an expert's shares.
	const auto of = [&](int e) { return total > 0 ? (double)a.width * a.k * a.loads[e] / total : 0; };
	EACH_ROW(n, a.rows) {
		if (left_out(a.experts, n, a.k)) {
			if (a.losses != 0 && lane_of() == 0) a.losses[n] = 0;
			continue;
		}
		const float *const scores = a.scores + n * a.width;
		double sum = 1, mean = 0;
		if (a.sigmoids) {
			sum = 0;
			for (int e = lane_of(); e < a.width; e += 32) sum += scores[e];
			sum = warp_sum(sum) + SIGMOID_FLOOR;
		}
		for (int e = lane_of(); e < a.width; e += 32) mean += of(e) * scores[e];
		mean = warp_sum(mean) / sum;
		if (a.losses != 0 && lane_of() == 0) a.losses[n] = mean;
		for (int e = lane_of(); e < a.width; e += 32) {
			const double s = scores[e];
			double d = a.weight * s * (of(e) - mean);
			if (a.sigmoids) d *= (1 - s) / sum;
			a.dlogits[n * a.width + e] = (float)(a.dlogits[n * a.width + e] + d);
		}
	}
}

struct balance_sum_args {
	double *sum;
	const double *losses;
	i64 rows;
};

// balance_sum, a single block, adds the losses of the rows.
KERNEL(balance_sum) {
	double loss = 0;
	for (i64 n = threadIdx.x; n < a.rows; n += blockDim.x) loss += a.losses[n];
	loss = block_sum(loss);
	if (threadIdx.x == 0) *a.sum += loss;
}
