// Command own is engine with an additional schedule, "waves": a group of microbatches, one
// for each rank, runs forward, then backward, then the next group follows. A rank never holds
// more outputs than there are ranks, and the pipeline drains after each wave.
//
//	go run ./examples/own plan --schedule waves --stages 4 --microbatches 8
//	go run ./examples/own run examples/own/config.toml --set data.train=input.txt --local-cluster 2
//
// It has engine's whole command line; start its workers with the same binary. With --local-cluster
// it starts itself; on other hosts, `own worker` joins `own cluster start`.
package main

import (
	"github.com/troupe-ml/troupe/cli"
	"github.com/troupe-ml/troupe/scheduler"
)

func main() {
	scheduler.Register("waves", scheduler.Generator{Rows: waves})
	cli.Main()
}

// waves makes the order of every rank: rank r holds chunk r.
func waves(s scheduler.Spec) ([][]scheduler.Action, error) {
	rows := make([][]scheduler.Action, s.Ranks)
	for rank := range rows {
		for first := 0; first < s.Microbatches; first += s.Ranks {
			for _, what := range []scheduler.Type{scheduler.F, scheduler.B} {
				for m := first; m < min(first+s.Ranks, s.Microbatches); m++ {
					rows[rank] = append(rows[rank], scheduler.Action{Chunk: int32(rank), Type: what, Microbatch: int32(m)})
				}
			}
		}
	}
	return rows, nil
}
