package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

var routeLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindRoute:      route,
	tensorops.KindRouteGrad:  routeGrad,
	tensorops.KindRouteStats: routeStats,
	tensorops.KindRouteCount: routeCount,
	tensorops.KindRouteBias:  routeBias,
}

const (
	routeChunk   = 1024 // ROUTE_CHUNK of route.cu
	routeThreads = 256  // ROUTE_THREADS of it
	routeRows    = 64   // ROUTE_ROWS of it
)

// byWarps starts a kernel of which each warp takes a row at a time.
func byWarps[A any](x *exec, kernel string, rows int, args *A) error {
	if rows == 0 {
		return nil
	}
	return launch(x, kernel, x.over(warp*rows), args)
}

// route chooses experts by a warp for each token, and sorts the pairs of a token and an expert by counting.
func route(x *exec, o *tensorops.Op) error {
	a := o.Route()
	rows, width, k := a.Logits.Rows(), a.Logits.Cols(), a.Experts.Cols()
	groups, err := x.scratch(4 * max(rows*a.Groups, 1))
	if err != nil {
		return err
	}
	if err := byWarps(x, "route_choose", rows, &struct {
		scores, weights, experts, logits, bias, groups uint64
		factor                                         float64
		rows                                           int64
		width, k, groupCount, topGroups                int32
		sigmoids, renormalize                          int32
	}{
		scores: address(a.Scores), weights: address(a.Weights), experts: address(a.Experts), logits: address(a.Logits),
		bias:   address(a.Bias),
		groups: groups, factor: a.Factor(), rows: int64(rows), width: int32(width), k: int32(k), groupCount: int32(a.Groups),
		topGroups: int32(a.TopGroups), sigmoids: number(a.Sigmoid), renormalize: number(a.Renormalize),
	}); err != nil {
		return err
	}
	pairs := rows * k
	chunks := ceil(pairs, routeChunk)
	counts, err := x.scratch(4 * max(chunks*width, 1))
	if err != nil {
		return err
	}
	g := grid{x: chunks, threads: routeThreads}
	if chunks > 0 {
		if err := launch(x, "route_chunks", g, &struct {
			counts, experts uint64
			pairs           int64
			width, _        int32
		}{counts: counts, experts: address(a.Experts), pairs: int64(pairs), width: int32(width)}); err != nil {
			return err
		}
	}
	if err := launch(x, "route_offsets", grid{threads: routeThreads}, &struct {
		offsets, counts uint64
		chunks          int64
		width, _        int32
	}{offsets: address(a.Offsets), counts: counts, chunks: int64(chunks), width: int32(width)}); err != nil || chunks == 0 {
		return err
	}
	return launch(x, "route_places", g, &struct {
		places, experts, offsets, counts uint64
		pairs                            int64
		width, _                         int32
	}{places: address(a.Places), experts: address(a.Experts), offsets: address(a.Offsets), counts: counts, pairs: int64(pairs),
		width: int32(width)})
}

// routeLoads counts the rows of each expert in each of some runs.
func routeLoads(x *exec, o *tensorops.Op, experts tensorops.Tensor, width, runs int) (loads uint64, err error) {
	pairs := experts.Len()
	if loads, err = x.scratch(4 * runs * width); err != nil {
		return 0, err
	}
	if err := launch(x, "fill4", x.over(runs*width), &struct {
		to        uint64
		n         int64
		bits, pad uint32
	}{to: loads, n: int64(runs * width)}); err != nil {
		return 0, err
	}
	return loads, each(x, "route_loads", pairs, &struct {
		loads, experts uint64
		fault          routeFault
		pairs, ofRun   int64
		width, _       int32
	}{loads: loads, experts: address(experts), fault: x.routeFaultOf(o), pairs: int64(pairs), ofRun: int64(pairs / runs),
		width: int32(width)})
}

func routeGrad(x *exec, o *tensorops.Op) error {
	a := o.RouteGrad()
	rows, width := a.Scores.Rows(), a.Scores.Cols()
	loads := uint64(0)
	if a.Balance != 0 && rows > 0 && !a.Loads.Valid() {
		var err error
		if loads, err = routeLoads(x, o, a.Experts, width, max(a.Sequences, 1)); err != nil {
			return err
		}
	}
	return byWarps(x, "route_grad", rows, &struct {
		dlogits, dweights, scores, experts, loads, ofAll, logits uint64
		fault                                                    routeFault
		factor, balance, zLoss                                   float64
		rows, ofRun                                              int64
		width, k, sigmoids, renormalize                          int32
	}{
		dlogits: address(a.DLogits), dweights: address(a.DWeights), scores: address(a.Scores), experts: address(a.Experts),
		loads: loads, ofAll: address(a.Loads), logits: address(a.Logits), fault: x.routeFaultOf(o),
		factor: a.Factor(), balance: a.Balance, zLoss: a.ZLoss, rows: int64(rows), ofRun: int64(max(rows/max(a.Sequences, 1), 1)),
		width: int32(width), k: int32(a.Experts.Cols()), sigmoids: number(a.Sigmoid), renormalize: number(a.Renormalize),
	})
}

// routeStats sums by blocks of rows, and then the blocks in order.
func routeStats(x *exec, o *tensorops.Op) error {
	a := o.RouteStats()
	rows, width, runs := a.Scores.Rows(), a.Scores.Cols(), max(a.Sequences, 1)
	if rows == 0 {
		return nil
	}
	if runs > maxGridY {
		return fmt.Errorf("%w: statistics of a router over %d sequences; the limit is %d", tensorops.ErrUnsupported, runs, maxGridY)
	}
	loads, err := routeLoads(x, o, a.Experts, width, runs)
	if err != nil {
		return err
	}
	ofRun := rows / runs
	blocks := ceil(ofRun, routeRows)
	partial, err := x.scratch(8 * runs * blocks * (2*width + 1))
	if err != nil {
		return err
	}
	if err := launch(x, "route_sums", grid{x: blocks, y: runs, threads: routeThreads}, &struct {
		partial, scores, logits, experts uint64
		ofRun                            int64
		width, k, sigmoids, _            int32
	}{partial: partial, scores: address(a.Scores), logits: address(a.Logits), experts: address(a.Experts), ofRun: int64(ofRun),
		width: int32(width), k: int32(a.Experts.Cols()), sigmoids: number(a.Sigmoid)}); err != nil {
		return err
	}
	return launch(x, "route_stats", grid{threads: routeThreads}, &struct {
		stats, partial, loads, ofAll uint64
		blocks                       int64
		runs, width, k, _            int32
	}{stats: address(a.Stats), partial: partial, loads: loads, ofAll: address(a.Loads), blocks: int64(blocks), runs: int32(runs),
		width: int32(width), k: int32(a.Experts.Cols())})
}

func routeCount(x *exec, o *tensorops.Op) error {
	a := o.RouteCount()
	if a.Experts.Len() == 0 {
		return nil
	}
	loads, err := routeLoads(x, o, a.Experts, a.Counts.Cols(), a.Counts.Rows())
	if err != nil {
		return err
	}
	return each(x, "route_count", a.Counts.Len(), &struct {
		counts, loads uint64
		n             int64
	}{address(a.Counts), loads, int64(a.Counts.Len())})
}

func routeBias(x *exec, o *tensorops.Op) error {
	a := o.RouteBias()
	if a.Bias.Len() == 0 {
		return nil
	}
	return launch(x, "route_bias", grid{threads: routeThreads}, &struct {
		bias, counts uint64
		rate         float64
		experts      int64
	}{address(a.Bias), address(a.Counts), a.Rate, int64(a.Bias.Len())})
}
