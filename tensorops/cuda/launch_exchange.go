package cuda

import "github.com/troupe-ml/troupe/tensorops"

// exchangeLaunchers are of what ranks that share experts, or a balance loss, compute beside their collectives.
var exchangeLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindSourceOffsets: sourceOffsets,
	tensorops.KindBalanceLoads:  balanceLoads,
}

const sourceThreads = 256 // SOURCE_THREADS of sources.cu

// sourceOffsets is a kernel although the host knows the table: what is computed here ends no batch, and can be part of a graph.
func sourceOffsets(x *exec, o *tensorops.Op) error {
	a := o.SourceOffsets()
	return launch(x, "source_offsets", grid{threads: sourceThreads}, &struct {
		offsets, table            uint64
		fault                     routeFault
		sources, experts, rank, _ int32
	}{offsets: address(a.Offsets), table: address(a.Table), fault: x.routeFaultOf(o), sources: int32(a.Table.Rows()),
		experts: int32(a.Table.Cols() - 1), rank: int32(a.Rank)})
}

// balanceLoads adds the losses of all rows in one block, so that their order depends on nothing but their number.
func balanceLoads(x *exec, o *tensorops.Op) (err error) {
	a := o.BalanceLoads()
	rows, losses := a.Scores.Rows(), uint64(0)
	if rows == 0 {
		return nil
	}
	if a.Sum.Valid() {
		if losses, err = x.scratch(8 * rows); err != nil {
			return err
		}
	}
	if err := byWarps(x, "balance_rows", rows, &struct {
		dlogits, losses, scores, loads, experts uint64
		weight                                  float64
		rows                                    int64
		width, k, sigmoids, _                   int32
	}{
		dlogits: address(a.DLogits), losses: losses, scores: address(a.Scores), loads: address(a.Loads), experts: address(a.Experts),
		weight: a.Weight, rows: int64(rows), width: int32(a.Scores.Cols()), k: int32(a.Experts.Cols()), sigmoids: number(a.Sigmoid),
	}); err != nil || losses == 0 {
		return err
	}
	return launch(x, "balance_sum", grid{threads: routeThreads}, &struct {
		sum, losses uint64
		rows        int64
	}{address(a.Sum), losses, int64(rows)})
}
