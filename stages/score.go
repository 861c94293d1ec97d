package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Branch is a text after a sequence of a Decoder. Score computes how likely it is, and the sequence does not keep it.
type Branch struct {
	Sequence *Sequence // nil: the tokens begin the text
	Tokens   []int32   // that the model reads
	Targets  []int32   // the tokens that follow the last len(Targets) of Tokens
}

// Score returns for each branch the log-likelihood of its targets, in nats: their sum. Several branches may continue the same
// sequence. On the CPU a result does not depend on the other branches.
func (d *Decoder) Score(branches ...Branch) ([]float64, error) {
	tokens, targets, err := d.branch(branches)
	if err != nil {
		return nil, err
	}
	defer func() { d.fed.branch = false }()
	l := d.stream.NewList()
	mb := Microbatch{Sequences: 1, Positions: len(tokens)}
	c := &pass{List: l, stage: d.stage, mb: &mb, fed: &d.fed}
	c.tokens = c.ids(tokens)
	var x tensorops.Tensor
	var s scored
	n := 0
	for _, layer := range d.layers {
		switch layer := layer.(type) {
		case *embedding:
			x = layer.forward(c, nil, x)
			l.Free(c.tokens)
		case *block:
			x = layer.decode(c, x, n)
			n++
		case *head:
			s = layer.score(c, x, targets)
		}
	}
	d.fed.end(l)
	if err := tensorops.Run(d.stream, l); err != nil {
		return nil, err
	}
	return s.likelihoods(len(branches)), nil
}

// branch joins the tokens of all branches, and notes whose they are.
func (d *Decoder) branch(branches []Branch) (tokens []int32, targets [][]int32, err error) {
	d.fed.runs, d.fed.of, d.fed.branch = d.fed.runs[:0], d.fed.of[:0], true
	if len(branches) == 0 {
		return nil, nil, fmt.Errorf("%w: no branch to score", ErrInput)
	}
	for i, b := range branches {
		q, used := b.Sequence, 0
		if q != nil {
			used = q.used
		}
		most := d.stage.model.Config.Positions()
		switch n := len(b.Tokens); {
		case q != nil && q.decoder != d:
			return nil, nil, fmt.Errorf("%w: the sequence of branch %d is closed or belongs to another decoder", ErrInput, i)
		case n == 0 || used+n > most:
			return nil, nil, fmt.Errorf("%w: branch %d has %d tokens after %d, but the model has %d positions", ErrInput, i, n, used, most)
		case len(b.Targets) == 0 || len(b.Targets) > n:
			return nil, nil, fmt.Errorf("%w: branch %d has %d targets for %d tokens", ErrInput, i, len(b.Targets), n)
		}
		for _, id := range b.Targets {
			if id < 0 || int(id) >= d.stage.model.Config.Vocab {
				return nil, nil, fmt.Errorf("%w: target %d of branch %d is not below the vocabulary of %d", ErrInput, id, i,
					d.stage.model.Config.Vocab)
			}
		}
		first := used
		if q != nil && q.rotatesAgain(len(b.Tokens)) {
			first, tokens = 0, append(tokens, q.text[:used]...)
		}
		from := len(tokens) - (used - first)
		tokens = append(tokens, b.Tokens...)
		d.fed.runs = append(d.fed.runs, run{from, len(tokens), first})
		d.fed.of = append(d.fed.of, q)
		targets = append(targets, b.Targets)
	}
	return tokens, targets, nil
}

// scored has the losses of parts of branches.
type scored struct {
	of   []int     // the branch of each part
	host []float64 // its statistics
}

func (s scored) likelihoods(branches int) []float64 {
	all := make([]float64, branches)
	for i, branch := range s.of {
		all[branch] -= s.host[i*tensorops.LossStats]
	}
	return all
}

// score records the losses of a Decoder's branches. It owns x. The logits of some rows exist at a time.
func (h *head) score(c *pass, x tensorops.Tensor, targets [][]int32) (s scored) {
	var ids []int32
	for _, t := range targets {
		ids = append(ids, t...)
	}
	rows := c.Alloc(x.DType(), len(ids), x.Cols())
	at := 0
	for i, r := range c.fed.runs {
		n := len(targets[i])
		c.Copy(rows.RowRange(at, at+n), x.RowRange(r.hi-n, r.hi))
		at += n
	}
	c.Free(x)
	n, stats := h.norm.forward(c, rows)
	c.scale(n, h.factor)
	each := h.rowsAtATime(c, len(ids))
	type part struct{ lo, hi int } // rows
	var parts []part
	for i, first := 0, 0; i < len(targets); i++ {
		last := first + len(targets[i])
		for lo := first; lo < last; {
			hi := min(last, lo/each*each+each)
			parts, s.of = append(parts, part{lo, hi}), append(s.of, i)
			lo = hi
		}
		first = last
	}
	s.host = make([]float64, len(parts)*tensorops.LossStats)
	losses := c.Alloc(tensorops.Float64, len(parts), tensorops.LossStats)
	out := c.Alloc(tensorops.Float32, each, h.vocab)
	lse := c.Alloc(tensorops.Float64, each, 1)
	want := c.Alloc(tensorops.Int32, len(ids), 1)
	c.Upload(want, tensorops.HostBytes(ids))
	next := 0
	for first := 0; first < len(ids); first += each {
		last := min(first+each, len(ids))
		logits := out.RowRange(0, last-first)
		h.proj.forward(c, logits, n.Matrix().RowRange(first, last))
		if h.softCap != 0 {
			c.SoftCap(logits, logits, h.softCap)
		}
		for ; next < len(parts) && parts[next].hi <= last; next++ {
			p := parts[next]
			c.CrossEntropy(losses.RowRange(next, next+1), lse.RowRange(0, p.hi-p.lo), logits.RowRange(p.lo-first, p.hi-first),
				want.RowRange(p.lo, p.hi), tensorops.CrossEntropyOpts{})
		}
	}
	c.Fetch(tensorops.HostBytes(s.host), losses)
	free(c.List, &rows, &n, &stats, &losses, &out, &lse, &want)
	return s
}
