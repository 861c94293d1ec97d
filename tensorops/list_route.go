package tensorops

import "math"

// RouteOpts says how a router chooses experts.
type RouteOpts struct {
	Sigmoid     bool    // a score is σ(logit); otherwise the scores of a row are the softmax of its logits
	Renormalize bool    // the weights of a row are divided by their sum
	Scale       float64 // factor of the weights; 0: 1
	// Groups, if it is not 0, divides the experts into equal groups of at least two, one after the other. A group counts as the
	// sum of its two best scores (plus bias), and a row chooses among the experts of its TopGroups best groups; of equal groups the
	// lower number comes first (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
	Groups, TopGroups int
	// Balance is for RouteGrad: the gradient of a share also gets Balance times the number of rows that its expert has. A share is
	// a score, of sigmoids divided by the sum of its row. That is the gradient of the loss Balance·Σ count[e]·Σ shares[·, e] with the
	// counts held fixed, the balance loss of Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6; for sigmoids
	// DeepSeek-V3, equations 17 to 20), except for a factor.
	Balance float64
	// Sequences is for RouteGrad and RouteStats: the rows are this number of equal runs, each balanced by itself; 0: all rows together.
	Sequences int
	// ZLoss is for RouteGrad with logits: they also get the gradient of the loss ZLoss·Σ lse², with lse the logarithm of the sum of a
	// row's exponentials (Zoph et al. 2022, arXiv 2202.08906, equation 5).
	ZLoss float64
	// Loads is for RouteGrad and RouteStats, if other ranks have further rows of each run: R×E float32, for each of the R runs of
	// Sequences the rows of each expert on all ranks. RouteCount counts those of one rank. Invalid: the runs are whole, and are counted.
	Loads Tensor
}

// SigmoidFloor is added to a sum of sigmoids before it divides, which may be 0.
const SigmoidFloor = 1e-20

// Factor returns the factor of the weights.
func (o RouteOpts) Factor() float64 {
	if o.Scale == 0 {
		return 1
	}
	return o.Scale
}

// RouteStats are the elements of the statistics before the counts of the experts.
const (
	RouteRows    = iota // rows
	RouteBalance        // N·E·Σ (count[e]/N)·(mean of shares[·, e]): the balance loss times the rows; see RouteOpts.Balance
	RouteEntropy        // sum over the rows of the entropy of the shares, in nats
	RouteZ              // sum over the rows of lse², if there are logits; see RouteOpts.ZLoss
	RouteCounts         // the first of E counts
)

// Route records the choice of k of E experts for each of N rows. scores, [N, E], become the softmax of a
// row of logits, or σ of each. The k experts with the largest score (plus bias, [E], if it is valid) are
// chosen; of equal ones the lower number comes first, and NaN comes last. All tensors of numbers are float32.
//
//	experts[n, j]  the chosen experts in ascending order, int32
//	weights[n, j]  their scores, divided by their sum if Renormalize is set (of sigmoids plus SigmoidFloor), times Scale
//	offsets[e]     rows of the experts before e, int32, E+1 of them: the rows of each expert are contiguous
//	places[n, j]   the row of the pair (n, j) among all N·k, int32: within an expert in ascending n
//
// scores may be logits.
func (l *List) Route(scores, weights, experts, places, offsets, logits, bias Tensor, r RouteOpts) {
	o := l.op(KindRoute)
	RouteArgs{scores, weights, experts, places, offsets, logits, bias, r}.Put(o)
	k := experts.Cols()
	l.need(o, dense(Float32, scores, weights, logits) && dense(Int32, experts, places, offsets) && sameMatrix(scores, logits) &&
		optional(bias, logits.Cols()) && k >= 1 && k <= logits.Cols() && experts.Rows() == logits.Rows() && sameMatrix(weights, experts) &&
		sameMatrix(places, experts) && offsets.Len() == logits.Cols()+1 && indexable(experts) && finite(r.Scale),
		needRoute)
	l.need(o, r.grouped(logits.Cols(), k), "groups (sizes 2 and 3) of at least two experts, which divide the experts, "+
		"and top groups from 1 to all, with at least k experts; or neither")
}

const needRoute = "logits and scores N×E, weights, experts and places N×k with k from 1 to E, offsets E+1, bias none or E, " +
	"N·k at most 2³¹−1"

// grouped reports whether the groups are none, or fit the experts.
func (r RouteOpts) grouped(experts, k int) bool {
	if r.Groups == 0 {
		return r.TopGroups == 0
	}
	return r.Groups > 0 && experts%r.Groups == 0 && experts/r.Groups >= 2 && r.TopGroups >= 1 && r.TopGroups <= r.Groups &&
		k <= experts/r.Groups*r.TopGroups
}

// runs reports whether rows of E experts are equal runs, with the loads of each if there are any.
func (r RouteOpts) runs(rows, experts int) bool {
	n := max(r.Sequences, 1)
	return r.Sequences >= 0 && rows%n == 0 && optional(r.Loads, n*experts)
}

// indexable reports whether an int32 can number the elements.
func indexable(t Tensor) bool { return t.Len() <= math.MaxInt32 }

// RouteArgs are the operands of KindRoute.
type RouteArgs struct {
	Scores, Weights, Experts, Places, Offsets, Logits, Bias Tensor // bias may be invalid
	RouteOpts
}

// Put stores the operands.
func (a RouteArgs) Put(o *Op) {
	o.operands(a.Scores, a.Weights, a.Experts, a.Places, a.Offsets, a.Logits, a.Bias)
	a.put(o)
}

// Route reads the operands.
func (o *Op) Route() RouteArgs {
	return RouteArgs{Scores: o.T[0], Weights: o.T[1], Experts: o.T[2], Places: o.T[3], Offsets: o.T[4], Logits: o.T[5], Bias: o.T[6],
		RouteOpts: o.routeOpts(7)}
}

func (r RouteOpts) put(o *Op) {
	o.I[0], o.I[1], o.I[2], o.I[3], o.I[4] = truth(r.Sigmoid), truth(r.Renormalize), r.Groups, r.TopGroups, r.Sequences
	o.F[0], o.F[1], o.F[2] = r.Scale, r.Balance, r.ZLoss
}

// routeOpts reads the options, with the loads in an operand.
func (o *Op) routeOpts(loads int) RouteOpts {
	return RouteOpts{Sigmoid: o.I[0] != 0, Renormalize: o.I[1] != 0, Groups: o.I[2], TopGroups: o.I[3], Sequences: o.I[4],
		Scale: o.F[0], Balance: o.F[1], ZLoss: o.F[2], Loads: o.T[loads]}
}

// truth returns 1 for true.
func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// RouteGrad records the gradient of the logits from that of the weights, with what Route made. The choice of
// experts has no gradient. dlogits and dweights are float32. Only ZLoss needs the logits, which must not be dlogits; Groups have no effect.
// A row whose experts are all −1 is left out: it counts in no load, and its gradient is 0.
func (l *List) RouteGrad(dlogits, dweights, scores, experts, offsets, logits Tensor, r RouteOpts) {
	o := l.op(KindRouteGrad)
	RouteGradArgs{dlogits, dweights, scores, experts, offsets, logits, r}.Put(o)
	l.need(o, dense(Float32, dlogits, dweights, scores) && dense(Int32, experts, offsets) && sameMatrix(dlogits, scores) &&
		sameMatrix(dweights, experts) && experts.Rows() == scores.Rows() && experts.Cols() >= 1 && experts.Cols() <= scores.Cols() &&
		offsets.Len() == scores.Cols()+1 && finite(r.Scale) && finite(r.Balance) && finite(r.ZLoss) &&
		r.runs(scores.Rows(), scores.Cols()) && optional(logits, scores.Len()) && logits.Valid() == (r.ZLoss != 0),
		"dlogits and scores N×E, dweights and experts N×k with k from 1 to E, offsets E+1, rows that are whole sequences (size 4), "+
			"logits N×E with a z-loss (number 2) and none without, loads none or those of each sequence")
}

// RouteGradArgs are the operands of KindRouteGrad.
type RouteGradArgs struct {
	DLogits, DWeights, Scores, Experts, Offsets, Logits Tensor // logits may be invalid
	RouteOpts
}

// Put stores the operands.
func (a RouteGradArgs) Put(o *Op) {
	o.operands(a.DLogits, a.DWeights, a.Scores, a.Experts, a.Offsets, a.Logits, a.Loads)
	a.put(o)
}

// RouteGrad reads the operands.
func (o *Op) RouteGrad() RouteGradArgs {
	return RouteGradArgs{DLogits: o.T[0], DWeights: o.T[1], Scores: o.T[2], Experts: o.T[3], Offsets: o.T[4], Logits: o.T[5],
		RouteOpts: o.routeOpts(6)}
}

// RouteStats records that statistics of a routing are added to stats, RouteCounts+E float64: see RouteRows and the
// others. Of the options Sigmoid, Sequences and Loads count. With Loads the balance loss is this rank's part of it. logits may be
// invalid. A row whose experts are all −1 is left out.
func (l *List) RouteStats(stats, scores, experts, offsets, logits Tensor, r RouteOpts) {
	o := l.op(KindRouteStats)
	RouteStatsArgs{stats, scores, experts, offsets, logits, r}.Put(o)
	l.need(o, dense(Float64, stats) && dense(Float32, scores) && dense(Int32, experts, offsets) &&
		stats.Len() == RouteCounts+scores.Cols() &&
		experts.Rows() == scores.Rows() && experts.Cols() >= 1 && experts.Cols() <= scores.Cols() && offsets.Len() == scores.Cols()+1 &&
		optional(logits, scores.Len()) && r.runs(scores.Rows(), scores.Cols()),
		"scores N×E, experts N×k with k from 1 to E, offsets E+1, logits none or N×E, stats 4+E float64, "+
			"rows that are whole sequences (size 4), loads none or those of each sequence")
}

// RouteStatsArgs are the operands of KindRouteStats.
type RouteStatsArgs struct {
	Stats, Scores, Experts, Offsets, Logits Tensor // logits may be invalid
	RouteOpts
}

// Put stores the operands.
func (a RouteStatsArgs) Put(o *Op) {
	o.operands(a.Stats, a.Scores, a.Experts, a.Offsets, a.Logits, a.Loads)
	a.put(o)
}

// RouteStats reads the operands.
func (o *Op) RouteStats() RouteStatsArgs {
	return RouteStatsArgs{Stats: o.T[0], Scores: o.T[1], Experts: o.T[2], Offsets: o.T[3], Logits: o.T[4], RouteOpts: o.routeOpts(5)}
}
