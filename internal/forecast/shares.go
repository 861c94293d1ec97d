package forecast

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// runner takes microbatches through one decoder layer and back, beside other runners.
type runner struct {
	stream     tensorops.Stream
	stage      *stages.Stage
	microbatch stages.Microbatch
	noise      []float32 // shared by all: the layer's input, and its output's gradient
	in, out    int       // their widths
}

// runnerRepeats is how many microbatches one list has: enough that the start of several
// runners one after the other does not show.
const runnerRepeats = 4

// measureShares tells how fast actions run beside each other, up to as many at a time as
// the device has threads and memory: see Costs.Shares.
func measureShares(ctx context.Context, b *plan.Plan, of *sample, dev device.Device, sequences int) ([]float64, error) {
	runners, err := newRunners(b, of, dev, sequences)
	defer func() {
		for _, r := range runners {
			tensorops.CloseStream(r.stream)
		}
	}()
	if err != nil {
		return nil, err
	}
	counts := doubling(len(runners))
	times := make(map[int][]float64) // of a list, by how many ran
	for round := range leastRounds + 1 {
		for _, n := range counts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			began := time.Now()
			if err := together(runners[:n]); err != nil {
				return nil, err
			}
			if round > 0 { // the first finds memory not yet in place
				times[n] = append(times[n], float64(time.Since(began)))
			}
		}
	}
	return sharesOf(counts, func(n int) float64 { return median(times[n]) }), nil
}

// sharesOf turns the time that n equal lists take together into shares. Between counts
// that were measured the speed of all together is interpolated. None runs faster beside
// others than alone, whatever a noisy machine measured.
func sharesOf(counts []int, took func(n int) float64) []float64 {
	all := func(n int) float64 { return float64(n) * took(counts[0]) / took(n) }
	shares := make([]float64, counts[len(counts)-1])
	for n := 1; n <= len(shares); n++ {
		at, exact := slices.BinarySearch(counts, n)
		speed := all(counts[at])
		if !exact {
			below, above := counts[at-1], counts[at]
			speed = all(below) + (all(above)-all(below))*float64(n-below)/float64(above-below)
		}
		shares[n-1] = min(1, speed/float64(n))
	}
	return shares
}

// doubling are 1, 2, 4, 8 and so on below n, and n.
func doubling(n int) []int {
	var out []int
	for k := 1; k < n; k *= 2 {
		out = append(out, k)
	}
	return append(out, n)
}

func newRunners(b *plan.Plan, of *sample, dev device.Device, sequences int) ([]*runner, error) {
	model := of.model
	var err error
	kinds := kindsOf(model)
	layer := kinds[0][len(kinds[0])/2]
	c := model.Config
	in, out := model.EdgeWidth(layer), model.EdgeWidth(layer+1)
	noise := make([]float32, sequences*c.Context*max(in, out))
	rng.Normal(noise, rng.NewKey(1, rng.StringStream("planner noise")), 0, 0, 1)
	var runners []*runner
	for range of.runners {
		r := &runner{stream: dev.NewStream("planner"), microbatch: microbatch(c, sequences), noise: noise, in: in, out: out}
		runners = append(runners, r)
		if r.stage, err = stages.NewStage(model, r.stream, []stages.ChunkSpec{{First: layer, Last: layer + 1}}, b.StageOptions(0)); err != nil {
			return runners, err
		}
		if err := r.stage.Load(stages.InitWeights(1), false); err != nil {
			return runners, err
		}
	}
	return runners, nil
}

// together runs a list on each of some runners.
func together(runners []*runner) error {
	ended := make(chan error, len(runners))
	for _, r := range runners {
		l := r.stream.NewList()
		for range runnerRepeats {
			for _, of := range []struct {
				t     scheduler.Type
				width int
			}{{scheduler.F, r.in}, {scheduler.B, r.out}} {
				a := scheduler.Action{Type: of.t, Microbatch: int32(r.microbatch.Index)}
				l.Free(stages.Only(stages.Act(l, r.stage, a, &r.microbatch, r.input(l, of.width))))
			}
		}
		r.stream.Submit(l, func(err error) { ended <- err })
	}
	var errs []error
	for range runners {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

func (r *runner) input(l *tensorops.List, width int) tensorops.Tensor {
	x := l.Alloc(tensorops.Float32, r.microbatch.Sequences, r.microbatch.Positions, width)
	l.Upload(x, tensorops.HostBytes(r.noise[:r.microbatch.Sequences*r.microbatch.Positions*width]))
	if r.stage.EdgeType() == tensorops.Float32 {
		return x
	}
	rounded := l.Alloc(r.stage.EdgeType(), x.Shape()...)
	l.Copy(rounded, x)
	l.Free(x)
	return rounded
}
