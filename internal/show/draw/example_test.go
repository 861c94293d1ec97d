package draw_test

import (
	"fmt"
	"os"

	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
)

func ExampleASCII() {
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.ZBH1, Ranks: 2, Chunks: 1, Microbatches: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	timeline, err := scheduler.Simulate(table, scheduler.UnitCosts)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := draw.ASCII(os.Stdout, 80, draw.FromTimeline(table, timeline)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// zb-h1, 2 ranks, 3 microbatches
	// makespan 10 units, bubble 10.0 %
	//
	//         0                   5
	// rank 0  0F0 0F1 .   0I0 0W0 0F2 0I1 0W1 0I2 0W2
	// rank 1  .   1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
	//
	//         busy  idle  peak in flight
	// rank 0     9     1               2
	// rank 1     9     0               2
}
