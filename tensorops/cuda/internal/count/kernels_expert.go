package count

// fault is route_fault of expert.cuh.
type fault struct {
	Word      uint64
	Kind, Pad int32
}

// Arguments of route.cu.
type (
	routeChooseArgs struct {
		Scores, Weights, Experts, Logits, Bias, Groups uint64
		Factor                                         float64
		Rows                                           int64
		Width, K, GroupCount, TopGroups                int32
		Sigmoids, Renormalize                          int32
	}
	routeChunksArgs struct {
		Counts, Experts uint64
		Pairs           int64
		Width, Pad      int32
	}
	routeOffsetsArgs struct {
		Offsets, Counts uint64
		Chunks          int64
		Width, Pad      int32
	}
	routePlacesArgs struct {
		Places, Experts, Offsets, Counts uint64
		Pairs                            int64
		Width, Pad                       int32
	}
	routeLoadsArgs struct {
		Loads, Experts uint64
		Fault          fault
		Pairs, OfRun   int64
		Width, Pad     int32
	}
	routeGradArgs struct {
		DLogits, DWeights, Scores, Experts, Loads, OfAll, Logits uint64
		Fault                                                    fault
		Factor, Balance, ZLoss                                   float64
		Rows, OfRun                                              int64
		Width, K, Sigmoids, Renormalize                          int32
	}
	routeSumsArgs struct {
		Partial, Scores, Logits, Experts uint64
		OfRun                            int64
		Width, K, Sigmoids, Pad          int32
	}
	routeStatsArgs struct {
		Stats, Partial, Loads, OfAll uint64
		Blocks                       int64
		Runs, Width, K, Pad          int32
	}
)

// Arguments of sources.cu and balance.cu.
type (
	sourceOffsetsArgs struct {
		Offsets, Table              uint64
		Fault                       fault
		Sources, Experts, Rank, Pad int32
	}
	balanceRowsArgs struct {
		DLogits, Losses, Scores, Loads, Experts uint64
		Weight                                  float64
		Rows                                    int64
		Width, K, Sigmoids, Pad                 int32
	}
)

// Arguments of expert.cu.
type (
	dispatchArgs struct {
		Rows, X, Places        uint64
		Fault                  fault
		Tokens, K, Cols, Count int64
		Aligned, Halves        uint32
	}
	combineArgs struct {
		Y, Rows, Weights, Places uint64
		Fault                    fault
		Tokens, K, Cols, Count   int64
		Aligned, Halves          uint32
	}
	weighRowsArgs struct {
		Rows, DRows, DWeights, Weights, Places, Used uint64
		Fault                                        fault
		Pairs, Cols, Count                           int64
		Aligned, Halves                              uint32
	}
	weighBiasArgs struct {
		DWeights, DY, Bias, Experts uint64
		Fault                       fault
		Pairs, K, Cols, Count       int64
		Aligned, Halves             uint32
	}
	rowGateArgs struct {
		Y, X, Gate      uint64
		Rows, Cols      int64
		Aligned, Halves uint32
	}
	rowGateGradArgs struct {
		DX, DGate, DY, X, Gate uint64
		Rows, Cols             int64
		Aligned, Halves        uint32
	}
	groupedColSumArgs struct {
		Sum, X, ByRow, Offsets      uint64
		Fault                       fault
		Rows, Cols                  int64
		Experts, Parts, Source, All int32
		Aligned, Halves             uint32
	}
)

// Arguments of grouped.cu and grouped.cuh.
type (
	groupedTilesArgs struct {
		Tiles, Offsets            uint64
		Fault                     fault
		Rows, Most                int64
		Experts, Parts, Wide, All int32
	}
	groupedArgs struct {
		Whole matmulArgs
		Tiles uint64
		Each  int64
	}
	groupedWeightArgs struct {
		Whole                       matmulArgs
		Offsets                     uint64
		Fault                       fault
		Each, Rows                  int64
		Experts, Parts, Source, All int32
	}
)

var routeKernels = map[string]costOf{
	"route_choose": line(Experts, func(a *routeChooseArgs, _ *Event, c *Cost) {
		scores, width := array(a.Scores, a.Rows*int64(a.Width), 4).again(), int64(a.Width)
		groups := array(a.Groups, a.Rows*int64(a.GroupCount), 4).again()
		c.writes(scores, array(a.Weights, a.Rows*int64(a.K), 4), array(a.Experts, a.Rows*int64(a.K), 4), groups)
		groups.Use, scores.Use = Cached, Cached // they were just written
		c.reads(array(a.Logits, a.Rows*width, 4).again(), array(a.Bias, width, 4).again(), scores, groups)
	}),
	"route_chunks": line(Experts, func(a *routeChunksArgs, e *Event, c *Cost) {
		c.writes(array(a.Counts, int64(e.Grid[0])*int64(a.Width), 4))
		c.reads(array(a.Experts, a.Pairs, 4))
	}),
	"route_offsets": line(Experts, func(a *routeOffsetsArgs, _ *Event, c *Cost) {
		counts := array(a.Counts, a.Chunks*int64(a.Width), 4)
		c.writes(array(a.Offsets, int64(a.Width)+1, 4), counts)
		c.reads(counts)
	}),
	"route_places": line(Experts, func(a *routePlacesArgs, e *Event, c *Cost) {
		c.writes(array(a.Places, a.Pairs, 4))
		c.reads(array(a.Experts, a.Pairs, 4), array(a.Offsets, int64(a.Width), 4).some(),
			array(a.Counts, int64(e.Grid[0])*int64(a.Width), 4).some())
	}),
	"route_loads": line(Experts, func(a *routeLoadsArgs, _ *Event, c *Cost) {
		loads := array(a.Loads, a.Pairs/max(a.OfRun, 1)*int64(a.Width), 4).some()
		c.writes(loads)
		c.reads(loads, array(a.Experts, a.Pairs, 4))
	}),
	"route_grad": line(Experts, func(a *routeGradArgs, _ *Event, c *Cost) {
		width, pairs := int64(a.Width), a.Rows*int64(a.K)
		c.writes(array(a.DLogits, a.Rows*width, 4))
		// Of rows that are left out, one expert is read.
		c.reads(array(a.DWeights, pairs, 4).some(), array(a.Scores, a.Rows*width, 4).some(), array(a.Experts, pairs, 4).some(),
			array(a.Loads, a.Rows/a.OfRun*width, 4).some(), array(a.OfAll, a.Rows/a.OfRun*width, 4).some(),
			array(a.Logits, a.Rows*width, 4).some())
	}),
	"route_sums": line(Experts, func(a *routeSumsArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[1]) * a.OfRun
		n := rows * int64(a.Width)
		c.writes(array(a.Partial, int64(e.Grid[0])*int64(e.Grid[1])*(2*int64(a.Width)+1), 8))
		c.reads(array(a.Scores, n, 4).again(), array(a.Logits, n, 4).some(), array(a.Experts, rows*int64(a.K), 4).some())
	}),
	"route_stats": line(Experts, func(a *routeStatsArgs, _ *Event, c *Cost) {
		width := int64(a.Width)
		stats := array(a.Stats, 4+width, 8).again() // for each run
		c.writes(stats)
		c.reads(stats, array(a.Partial, int64(a.Runs)*a.Blocks*(2*width+1), 8), array(a.Loads, int64(a.Runs)*width, 4).again(),
			array(a.OfAll, int64(a.Runs)*width, 4).again())
	}),
	"route_count": line(Experts, func(a *struct {
		Counts, Loads uint64
		N             int64
	}, _ *Event, c *Cost) {
		c.writes(array(a.Counts, a.N, 4))
		c.reads(array(a.Counts, a.N, 4), array(a.Loads, a.N, 4))
	}),
	"route_bias": line(Experts, func(a *struct {
		Bias, Counts uint64
		Rate         float64
		Experts      int64
	}, _ *Event, c *Cost) {
		bias := array(a.Bias, a.Experts, 4).some()
		c.writes(bias)
		c.reads(bias, array(a.Counts, a.Experts, 4).again())
	}),
}

var exchangeKernels = map[string]costOf{
	"source_offsets": line(Experts, func(a *sourceOffsetsArgs, _ *Event, c *Cost) {
		c.writes(array(a.Offsets, int64(a.Experts)+1, 4))
		c.reads(array(a.Table, int64(a.Sources)*(int64(a.Experts)+1), 4).again())
	}),
	"balance_rows": line(Experts, func(a *balanceRowsArgs, _ *Event, c *Cost) {
		width := int64(a.Width)
		dlogits := array(a.DLogits, a.Rows*width, 4).some() // rows that are left out have none
		c.writes(dlogits, array(a.Losses, a.Rows, 8))
		c.reads(dlogits, array(a.Scores, a.Rows*width, 4).some(), array(a.Loads, width, 4).again(), array(a.Experts, a.Rows*int64(a.K),
			4).some())
	}),
	"balance_sum": line(Experts, func(a *struct {
		Sum, Losses uint64
		Rows        int64
	}, _ *Event, c *Cost) {
		sum := array(a.Sum, 1, 8)
		c.writes(sum)
		c.reads(sum, array(a.Losses, a.Rows, 8))
	}),
}

var expertKernels = map[string]costOf{
	"dispatch": line(Experts, func(a *dispatchArgs, _ *Event, c *Cost) {
		c.writes(either(a.Rows, a.Count*a.Cols, a.Halves, 0))
		c.reads(either(a.X, a.Tokens*a.Cols, a.Halves, 1), array(a.Places, a.Count, 4).again())
	}),
	"combine": line(Experts, func(a *combineArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.Tokens*a.Cols, a.Halves, 0))
		c.reads(either(a.Rows, a.Count*a.Cols, a.Halves, 1), array(a.Weights, a.Count, 4).again(), array(a.Places, a.Count, 4).again())
	}),
	"weigh_rows": line(Experts, func(a *weighRowsArgs, _ *Event, c *Cost) {
		rows, drows := either(a.Rows, a.Count*a.Cols, a.Halves, 0), either(a.DRows, a.Count*a.Cols, a.Halves, 1)
		dweights, weights := array(a.DWeights, a.Pairs, 4), array(a.Weights, a.Pairs, 4).again()
		if a.Used != 0 {
			rows, drows, dweights, weights = rows.some(), drows.some(), dweights.some(), weights.some()
		}
		c.writes(rows, drows, dweights)
		c.reads(rows, drows, weights, array(a.Places, a.Pairs, 4).again(), array(a.Used, 1, 4).again())
	}),
	"weigh_bias": line(Experts, func(a *weighBiasArgs, _ *Event, c *Cost) {
		dweights := array(a.DWeights, a.Pairs, 4)
		c.writes(dweights)
		c.reads(dweights, either(a.DY, a.Pairs/a.K*a.Cols, a.Halves, 0).again(), array(a.Bias, a.Count*a.Cols, 4).some(),
			array(a.Experts, a.Pairs, 4).again())
	}),
	"row_gate": line(Experts, func(a *rowGateArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.Rows*a.Cols, a.Halves, 0))
		c.reads(either(a.X, a.Rows*a.Cols, a.Halves, 1), array(a.Gate, a.Rows, 4).again())
	}),
	"row_gate_grad": line(Experts, func(a *rowGateGradArgs, _ *Event, c *Cost) {
		n := a.Rows * a.Cols
		c.writes(either(a.DX, n, a.Halves, 0), array(a.DGate, a.Rows, 4))
		c.reads(either(a.DY, n, a.Halves, 1), either(a.X, n, a.Halves, 2), array(a.Gate, a.Rows, 4).again())
	}),
	"weights_by_row": line(Experts, func(a *struct {
		ByRow, Weights, Places uint64
		Fault                  fault
		Pairs                  int64
	}, _ *Event, c *Cost) {
		c.writes(array(a.ByRow, a.Pairs, 4))
		c.reads(array(a.Weights, a.Pairs, 4), array(a.Places, a.Pairs, 4))
	}),
	"grouped_col_sum": line(Columns, func(a *groupedColSumArgs, _ *Event, c *Cost) {
		sum := array(a.Sum, int64(a.Experts)*a.Cols, 4).some()
		c.writes(sum)
		x, weights := either(a.X, a.Rows*a.Cols, a.Halves, 0), array(a.ByRow, a.Rows, 4).again()
		if a.All == 0 { // the rows of one source
			x, weights = x.some(), weights.some()
		}
		c.reads(sum, x, weights,
			array(a.Offsets, int64(a.Experts)*int64(a.Parts)+1, 4).some())
	}),
}

// grouped is a product of the rows of experts. Which experts have rows is known to the device alone: it reads the matrices
// and biases of no more than there are tiles.
func grouped(a *groupedArgs, e *Event, c *Cost) {
	w, tiles := &a.Whole, int64(e.Grid[0])
	rows, n, k := int64(w.M), int64(w.N), w.Last
	c.FLOPs = 2 * float64(rows) * float64(n) * float64(k)
	// Of as many experts as there may be, which lie one after another; biases are not told from matrices.
	b := array(w.B, tiles*(a.Each+n), 4).some()
	if w.Bias != 0 {
		b.At = min(w.B, w.Bias)
	}
	b.Of = anywhere
	to := matrix(w.C, rows, n, w.CStride, 4).some()
	c.writes(to)
	if w.Accumulate == 0 {
		to.Use = Cached // from the second piece of the depth on
	}
	c.reads(to, matrix(w.A, rows, k, w.AStride, 4).some(), b, array(a.Tiles, 3*tiles, 4).some())
}

func groupedWeights(a *groupedWeightArgs, e *Event, c *Cost) {
	w, experts := &a.Whole, int64(e.Grid[1])
	m, n := int64(w.M), int64(w.N)
	c.FLOPs = 2 * float64(a.Rows) * float64(m) * float64(n)
	to := array(w.C, experts*a.Each, 4).some()
	c.writes(to)
	c.reads(to, matrix(w.A, a.Rows, m, w.AStride, 4).some(), matrix(w.B, a.Rows, n, w.BStride, 4).some(),
		array(a.Offsets, experts*int64(a.Parts)+1, 4).some())
}

func groupedKernels() map[string]costOf {
	all := map[string]costOf{
		"grouped_tiles": line(Experts, func(a *groupedTilesArgs, _ *Event, c *Cost) {
			c.writes(array(a.Tiles, 3*a.Most, 4).some())
			c.reads(array(a.Offsets, int64(a.Experts)*int64(a.Parts)+1, 4).again())
		}),
	}
	for _, kernel := range []string{"grouped_", "grouped_mma_"} {
		for _, width := range []string{"_64", "_128"} {
			all[kernel+"n"+width], all[kernel+"t"+width] = line(Products, grouped), line(Products, grouped)
			all[kernel+"weights"+width] = line(Products, groupedWeights)
		}
	}
	return all
}
