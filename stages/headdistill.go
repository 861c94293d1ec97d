package stages

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// distilled computes the loss of each target beside a teacher, and everything that its gradient needs.
func (h *head) distilled(c *pass, s *headState, d *Distill) {
	rows, targets := c.rows(), c.targets.View(c.rows(), 1)
	each := h.rowsAtATime(c, rows)
	chunks := max(1, (rows+each-1)/max(each, 1))
	s.chunks, s.later = chunks, s.later[:0]
	s.loss = c.Alloc(tensorops.Float64, chunks, tensorops.DistillStats)
	s.host = append(s.host[:0], make([]float64, chunks*tensorops.DistillStats)...)
	kept := each
	if c.mb.headLater() {
		kept = rows
	}
	s.logits = c.Alloc(c.inner(), kept, h.width(c))
	if h.softCap != 0 {
		s.raw = c.Alloc(c.inner(), each, h.width(c))
	}
	ids, logp := c.teacher(rows, d.TopK)
	for i := range chunks {
		first, last := i*each, min((i+1)*each, rows)
		logits, raw := h.rowLogits(c, s, first, last)
		own := logits.Columns(0, h.vocab)
		c.Distill(s.loss.RowRange(i, i+1), own, targets.RowRange(first, last), ids.RowRange(first, last), logp.RowRange(first, last),
			tensorops.DistillOpts{Grad: own, Scale: 1, Temperature: d.Temperature, Weight: d.Weight, Reverse: d.Loss == ReverseKL})
		h.gradients(c, s, logits, raw, first)
	}
	free(c.List, &s.raw, &ids, &logp)
	c.Fetch(tensorops.HostBytes(s.host), s.loss)
}

// teacher copies what the teacher says about each row to the device.
func (c *pass) teacher(rows, k int) (ids, logp tensorops.Tensor) {
	ids, logp = c.Alloc(tensorops.Int32, rows, k), c.Alloc(tensorops.Float32, rows, k+1)
	fields := c.mb.Fields
	c.Call(tensorops.Call{Name: "the teacher's tokens", Writes: []tensorops.Tensor{ids, logp},
		Func: func(_, writes []tensorops.Array) error {
			if len(fields) != 2 || len(fields[0].Int) != rows*k || len(fields[1].Float) != rows*(k+1) {
				return fmt.Errorf("%w: the teacher's %d tokens of %d positions are missing", ErrInput, k, rows)
			}
			copy(writes[0].Int, fields[0].Int)
			copy(writes[1].Float, fields[1].Float)
			return nil
		}})
	return ids, logp
}

// distillReport is the report of a microbatch beside a teacher.
func (s *headState) distillReport(d *Distill) (r Report) {
	hard, soft := Metric{Name: "cross_entropy"}, Metric{Name: "divergence"}
	for i := 0; i < len(s.host); i += tensorops.DistillStats {
		hard.Sum, soft.Sum, r.Targets = hard.Sum+s.host[i], soft.Sum+s.host[i+1], r.Targets+s.host[i+2]
	}
	hard.Count, soft.Count = r.Targets, r.Targets
	r.Sum = (1-d.Weight)*hard.Sum + d.Weight*d.Temperature*d.Temperature*soft.Sum
	r.Metrics = []Metric{hard, soft}
	return r
}

// teach collects the most likely tokens of each position. The loss is that of the logits over the temperature.
func (h *head) teach(c *pass, s *headState, d *Distill) {
	rows, targets, k := c.rows(), c.targets.View(c.rows(), 1), d.TopK
	each := h.rowsAtATime(c, rows)
	chunks := max(1, (rows+each-1)/max(each, 1))
	s.chunks, s.later = chunks, s.later[:0]
	s.loss = c.Alloc(tensorops.Float64, chunks, tensorops.LossStats)
	s.host = append(s.host[:0], make([]float64, chunks*tensorops.LossStats)...)
	s.logits = c.Alloc(c.inner(), each, h.width(c))
	lse := c.Alloc(tensorops.Float64, each, 1)
	ids, logp := c.Alloc(tensorops.Int32, rows, k), c.Alloc(tensorops.Float32, rows, k+1)
	for i := range chunks {
		first, last := i*each, min((i+1)*each, rows)
		logits, _ := h.rowLogits(c, s, first, last)
		c.scaled(logits, 1/d.Temperature)
		sums := lse.RowRange(0, last-first)
		h.crossEntropy(c, s.loss.RowRange(i, i+1), sums, logits.Columns(0, h.vocab), targets.RowRange(first, last),
			tensorops.CrossEntropyOpts{})
		c.Call(tensorops.Call{Name: "the teacher's tokens", Reads: []tensorops.Tensor{logits, sums},
			Writes: []tensorops.Tensor{ids.RowRange(first, last), logp.RowRange(first, last)},
			Func: func(reads, writes []tensorops.Array) error {
				width := logits.Cols()
				for n := range last - first {
					likely(reads[0].Float[n*width:][:h.vocab], reads[1].Double[n], writes[0].Int[n*k:][:k], writes[1].Float[n*(k+1):][:k+1])
				}
				return nil
			}})
	}
	b, t := c.mb.Sequences, c.mb.Positions
	c.collect(TeacherIDs, ids.View(b, t, k))
	c.collect(TeacherLogP, logp.View(b, t, k+1))
	free(c.List, &lse, &ids, &logp)
	c.Fetch(tensorops.HostBytes(s.host), s.loss)
}

// leastRest is the least probability of all tokens that are not among the most likely ones: a difference from 1 knows no less.
const leastRest = 1e-8

// likely finds the largest of a row of logits, whose log-sum is lse, in descending order; of equal ones, the lower id comes first.
func likely(logits []float32, lse float64, ids []int32, logp []float32) {
	n, k := 0, len(ids)
	for id, v := range logits {
		if n == k && !(v > logp[k-1]) { // logp has the logits until the end
			continue
		}
		at := min(n, k-1)
		for ; at > 0 && v > logp[at-1]; at-- {
			ids[at], logp[at] = ids[at-1], logp[at-1]
		}
		ids[at], logp[at] = int32(id), v
		n = min(n+1, k)
	}
	sum := 0.0
	for i := range ids {
		p := float64(logp[i]) - lse
		logp[i], sum = float32(p), sum+math.Exp(p)
	}
	logp[k] = float32(math.Log(max(1-sum, leastRest)))
}
