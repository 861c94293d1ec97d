package plan

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// zero is parallel.zero, or 0 if there is one replica.
func (p *Plan) zero() int {
	if p.grid.Size(grid.Copies) == 1 {
		return 0
	}
	return p.cfg.Parallel.Zero
}

// DescribeZero describes what replicas share; it is "" if they share nothing.
func (p *Plan) DescribeZero() string {
	text := p.describeZero()
	switch n := p.grid.Size(grid.ExpertCopies); {
	case text == "" || !p.grid.HasExpertGroups():
		return text
	case n == 1:
		return text + "; experts are not shared, since no two ranks have the same ones"
	default:
		return fmt.Sprintf("%s; of experts, the %d ranks with the same ones do", text, n)
	}
}

// describeZero is DescribeZero without what is said of experts.
func (p *Plan) describeZero() string {
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

// ZeroSaves reports whether parallel.zero needs less memory than a lower level.
func (p *Plan) ZeroSaves() bool { return !p.zeroIdle }

// microbatches is the number of microbatches of a replica in a step, if all replicas have equally many; else 0.
func (p *Plan) microbatches() int {
	total, n := p.cfg.Batch.Sequences/p.cfg.Batch.Microbatch, p.grid.Size(grid.Data)
	if total%n != 0 {
		return 0
	}
	return total / n
}

// holdAt is how much more memory holdWeights may take.
const holdAt = 1.1

// checkZero rejects ZeRO-3 if it is not possible, and warns if ZeRO-2 or 3 saves nothing.
func (p *Plan) checkZero() error {
	zero, c := p.zero(), p.cfg
	if zero < 2 {
		return nil
	}
	if zero == 3 && !p.model.Config.Language() {
		return c.Errorf("parallel.zero",
			"3 frees a layer's weights after its computation, but other layers of family %q may use them; set zero = 2", c.Model.Family)
	}
	if zero == 3 && c.Device.DType == bfloat16 && !p.AllOnHost() {
		return c.Errorf("parallel.zero",
			"3 is not supported on a GPU with device.dtype = %q: the products read a whole copy of the weights; set zero = 2", bfloat16)
	}
	few := p.fewer()
	lowers, least := make([]int64, zero), int64(math.MaxInt64) // the memory of each lower level, and the least
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
		takes := fmt.Sprintf("parallel.zero = %d saves no memory here: with %s for each replica, all ranks need %s, and with zero = %[5]d %[4]s",
			zero, words.Plural(few.microbatches(), "microbatch"), words.Bytes(with), words.Bytes(without), lower)
		if zero == 3 {
			p.warn("%s. The weights of two layers are whole at a time, and a stage has too few layers (pipeline.stages is %d): use zero = %d",
				takes, c.Pipeline.Stages, lower)
			return nil
		}
		p.warn("%s. A gradient is whole until the step's last microbatch, and with pipeline.schedule = %q and %s on each stage too many are whole at a time: "+
			"use zero = 1, or schedule = %q with more pipeline.chunks, or a batch of one microbatch for each replica",
			takes, c.Pipeline.Schedule, words.Plural(c.Pipeline.Chunks, "chunk"), scheduler.BreadthFirst)
	}
	return nil
}

// chooseZero3 decides whether gradients stay whole with ZeRO-3, because that needs less memory, and whether a chunk's weights
// stay gathered, which must still need less than least, the memory with a lower level. with is the memory with neither;
// the result is the memory with the choices.
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

// fewer returns the plan with fewer microbatches, if it has many: comparisons of memory give the same result, faster.
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
	if err != nil { // compare with the real number
		return &q
	}
	q.table, c.Batch.Sequences = t, n*p.grid.Size(grid.Data)*c.Batch.Microbatch
	return &q
}

// totalBytes returns the tensor memory of all ranks with another parallel.zero.
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
