package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// A Preference needs the log-probabilities of whole answers before the gradient of any logit is known. So the head computes the logits
// twice in training: first for the log-probabilities, then for the gradients, each row's times the derivative of the loss by its
// answer's log-probability. If all logits exist at the same time, it computes them once.

// answerPart is the rows [lo, hi) of an answer whose logits exist at the same time.
type answerPart struct{ lo, hi, answer int }

// partsOf divides rows, of which each exist at a time, into parts of answers of positions rows.
func partsOf(rows, each, positions int) (parts []answerPart) {
	for lo := 0; lo < rows; {
		hi := min(rows, lo/each*each+each, lo/positions*positions+positions)
		parts, lo = append(parts, answerPart{lo, hi, lo / positions}), hi
	}
	return parts
}

// answers computes the loss of a Preference and, in training, everything that its gradient needs.
func (h *head) answers(c *pass, s *headState, p *Preference) {
	rows, targets := c.rows(), c.targets.View(c.rows(), 1)
	each := h.rowsAtATime(c, rows)
	parts := partsOf(rows, each, c.mb.Positions)
	kept := each
	if c.mb.headLater() {
		kept = rows
	}
	s.loss = c.Alloc(tensorops.Float64, len(parts), tensorops.LossStats)
	s.logits = c.Alloc(c.inner(), kept, h.width(c))
	lse := c.Alloc(tensorops.Float64, each, 1)
	if h.softCap != 0 && c.mb.Train {
		s.raw = c.Alloc(c.inner(), each, h.width(c))
	}
	chunks := 0
	for next, first := 0, 0; first < rows; first += each {
		last := min(first+each, rows)
		logits, _ := h.rowLogits(c, s, first, last)
		for ; next < len(parts) && parts[next].hi <= last; next++ {
			q := parts[next]
			own := logits.RowRange(q.lo-first, q.hi-first).Columns(0, h.vocab)
			h.crossEntropy(c, s.loss.RowRange(next, next+1), lse.RowRange(0, q.hi-q.lo), own, targets.RowRange(q.lo, q.hi),
				tensorops.CrossEntropyOpts{})
		}
		chunks++
	}
	if g := c.stage.opts.Context; g.size() > 1 { // each rank has some positions of every answer
		c.AllReduce(s.loss, tensorops.Sum, g.Group)
	}
	scales := h.judge(c, s, p, parts)
	if c.mb.Train {
		stats := c.Alloc(tensorops.Float64, 1, tensorops.LossStats)
		for first := 0; first < rows; first += each {
			last := min(first+each, rows)
			logits, raw := s.rowsOf(c, first, last-first), s.raw
			if chunks > 1 {
				logits, raw = h.rowLogits(c, s, first, last)
			}
			o := tensorops.CrossEntropyOpts{Grad: logits.Columns(0, h.vocab), Scale: 1, RowScale: scales.RowRange(first, last)}
			h.crossEntropy(c, stats, lse.RowRange(0, last-first), o.Grad, targets.RowRange(first, last), o)
			h.gradients(c, s, logits, raw, first)
		}
		c.Free(stats)
	}
	free(c.List, &lse, &s.raw, &scales)
}

// rowLogits records the logits of rows [first, last) and, in training, returns those without the soft cap, too.
func (h *head) rowLogits(c *pass, s *headState, first, last int) (logits, raw tensorops.Tensor) {
	c.firstRow = first
	logits = s.rowsOf(c, first, last-first)
	raw = h.logits(c, s, logits, s.n.Matrix().RowRange(first, last))
	c.firstRow = 0
	return logits, raw
}

// judge records the loss of the answers, and returns for each row the factor of its gradient. The numbers are few, so the loss is
// computed in Go.
func (h *head) judge(c *pass, s *headState, p *Preference, parts []answerPart) (scales tensorops.Tensor) {
	sequences, positions := c.mb.Sequences, c.mb.Positions
	sums := c.Alloc(tensorops.Float64, sequences, 2)
	writes := []tensorops.Tensor{sums}
	if c.mb.Train {
		scales = c.Alloc(tensorops.Float64, sequences*positions, 1)
		writes = append(writes, scales)
	}
	var reference []float64
	if p.NeedsReference() && len(c.mb.Fields) == 1 {
		reference = c.mb.Fields[0].Double
	}
	c.Call(tensorops.Call{Name: "preference loss " + p.Loss, Reads: []tensorops.Tensor{s.loss}, Writes: writes,
		Func: func(reads, writes []tensorops.Array) error {
			if p.NeedsReference() && len(reference) != 2*sequences {
				return fmt.Errorf("%w: got %d numbers of the reference model for %d sequences; want 2 for each", ErrInput, len(reference),
					sequences)
			}
			all := make([]answer, sequences)
			for i, q := range parts {
				all[q.answer].logp -= reads[0].Double[i*tensorops.LossStats]
				all[q.answer].tokens += reads[0].Double[i*tensorops.LossStats+1]
			}
			for i := range all {
				writes[0].Double[2*i], writes[0].Double[2*i+1] = all[i].logp, all[i].tokens
				if reference != nil {
					all[i].reference, all[i].good = reference[2*i], reference[2*i+1] != 0
				}
			}
			var grads []float64
			s.judged, grads = p.report(all)
			if len(writes) > 1 {
				for i := range writes[1].Double {
					writes[1].Double[i] = -grads[i/positions] // each row's loss is −logp
				}
			}
			return nil
		}})
	c.collect(LogProbabilities, sums)
	c.Free(sums)
	return scales
}

// report is judge or, without a loss, the report of all tokens.
func (p *Preference) report(answers []answer) (r Report, grads []float64) {
	if p.Loss != "" {
		return p.judge(answers)
	}
	for _, a := range answers {
		r.Sum, r.Targets = r.Sum-a.logp, r.Targets+a.tokens
	}
	return r, make([]float64, len(answers))
}
