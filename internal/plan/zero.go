package plan

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// zero is what the replicas share beside the microbatches: parallel.zero.
func (p *Plan) zero() int {
	if p.grid.Size(grid.Copies) == 1 {
		return 0
	}
	return p.cfg.Parallel.Zero
}

// DescribeZero says what replicas share, in a few words; "" where that is nothing.
func (p *Plan) DescribeZero() string {
	weights := "weights, gathered layer by layer"
	if p.holdWeights {
		weights = "weights, gathered chunk by chunk"
	}
	switch zero := p.zero(); {
	case zero == 0:
		return ""
	case zero == 1:
		return "ZeRO-1: replicas share the optimizer's state"
	case zero == 2:
		return "ZeRO-2: replicas share the optimizer's state and gradients"
	case p.wholeGrads:
		return "ZeRO-3: replicas share the optimizer's state and " + weights + "; gradients stay whole, which takes less here"
	default:
		return "ZeRO-3: replicas share the optimizer's state, gradients and " + weights
	}
}

// ZeroSaves reports whether what replicas share by parallel.zero takes less memory than with a lower one.
func (p *Plan) ZeroSaves() bool { return !p.zeroIdle }

// microbatches is how many of a step a replica has, if all have as many and compute them in the same order;
// else 0.
func (p *Plan) microbatches() int {
	total, n := p.cfg.Batch.Sequences/p.cfg.Batch.Microbatch, p.grid.Size(grid.Data)
	if total%n != 0 {
		return 0
	}
	return total / n
}

// holdAt is how much more memory may be taken where weights are gathered for several microbatches at once.
const holdAt = 1.1

// checkZero refuses ZeRO-3 where it can't be, and warns of ZeRO-2 and 3 where they save nothing.
func (p *Plan) checkZero() error {
	zero, c := p.zero(), p.cfg
	if zero < 2 {
		return nil
	}
	if zero == 3 && !p.model.Config.Language() {
		return c.Errorf("parallel.zero",
			"3 lets go of a layer's weights when it has computed, and layers of family %q may hand them on; set zero = 2", c.Model.Family)
	}
	if zero == 3 && c.Device.DType == bfloat16 && !p.AllOnHost() {
		return c.Errorf("parallel.zero",
			"3 is not for a GPU with device.dtype = %q, whose products read a copy of the weights that would be whole; set zero = 2", bfloat16)
	}
	few := p.fewer()
	lowers, least := make([]int64, zero), int64(math.MaxInt64) // what each lower one takes, and the best of them
	for lower := 1; lower < zero; lower++ {
		var err error
		if lowers[lower], err = few.totalBytes(lower); err != nil {
			return err
		}
		least = min(least, lowers[lower])
	}
	with, err := few.totalBytes(zero)
	if err != nil {
		return err
	}
	if zero == 3 {
		if with, err = few.chooseZero3(with, least); err != nil {
			return err
		}
		p.wholeGrads, p.holdWeights = few.wholeGrads, few.holdWeights
	}
	for lower, without := range lowers {
		if lower == 0 || with < without {
			continue
		}
		p.zeroIdle = true
		takes := fmt.Sprintf("parallel.zero = %d saves nothing here: with %s for each replica all ranks take %s, and %s with %d",
			zero, words.Plural(few.microbatches(), "microbatch"), words.Bytes(with), words.Bytes(without), lower)
		if zero == 3 {
			p.warn("%s. The weights of two layers are whole at once, and a stage has too few layers for that (pipeline.stages is %d): zero = %d is as good",
				takes, c.Pipeline.Stages, lower)
			return nil
		}
		p.warn("%s. A gradient is whole until its layers have seen the step's last microbatch, and with pipeline.schedule = %q and %s on each stage too many are at once: "+
			"zero = 1 is as good, or use schedule = %q with more pipeline.chunks, or a batch of one microbatch for each replica",
			takes, c.Pipeline.Schedule, words.Plural(c.Pipeline.Chunks, "chunk"), scheduler.BreadthFirst)
	}
	return nil
}

// chooseZero3 says whether gradients stay whole with ZeRO-3, since that takes less, and whether a chunk's weights stay
// gathered, which must still take less than least, the memory with a lower parallel.zero. with is the memory with neither,
// and what it returns that with what it has chosen.
func (p *Plan) chooseZero3(with, least int64) (int64, error) {
	q := *p
	q.wholeGrads = true
	whole, err := q.totalBytes(3)
	if err != nil {
		return 0, err
	}
	p.wholeGrads, with = whole <= with, min(whole, with)
	q = *p
	q.holdWeights = true
	hold, err := q.totalBytes(3)
	if err != nil {
		return 0, err
	}
	if hold >= least || float64(hold) > holdAt*float64(with) {
		return with, nil
	}
	p.holdWeights = true
	return hold, nil
}

// fewer is the plan with fewer microbatches, where it has many: ways to share memory compare alike, and sooner.
func (p *Plan) fewer() *Plan {
	q, c := *p, *p.cfg
	q.cfg = &c
	group := max(1, q.spec.MicrobatchGroupSize)
	n := max(4*c.Pipeline.Stages, 2*group)
	n = (n + group - 1) / group * group
	if p.text != nil || len(p.table.Skips) > 0 || n >= p.microbatches() {
		return &q
	}
	q.spec.Microbatches = n
	t, err := scheduler.Generate(q.spec)
	if err != nil { // it goes by the real number
		return &q
	}
	q.table, c.Batch.Sequences = t, n*p.grid.Size(grid.Data)*c.Batch.Microbatch
	return &q
}

// totalBytes is the tensor memory of all ranks with another parallel.zero.
func (p *Plan) totalBytes(zero int) (sum int64, err error) {
	q, c := *p, *p.cfg
	q.cfg, c.Parallel.Zero = &c, zero
	q.wholeGrads = p.wholeGrads && zero == 3
	bytes, err := q.FullestBytes()
	for stage, b := range bytes {
		sum += b * int64(p.ranksOf(stage))
	}
	return sum, err
}
