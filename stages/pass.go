package stages

import (
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// pass is the context in which a layer records one pass of one microbatch.
type pass struct {
	*tensorops.List
	stage *Stage
	mb    *Microbatch
	// The microbatch's token ids and targets on the device; invalid in chunks without embedding or
	// loss.
	tokens, targets tensorops.Tensor
	starts          tensorops.Tensor // of documents, a row for each row of c.rows(); invalid if not packed

	chunk  *chunk // nil in generation
	fed    *fed   // in generation: whose rows these are
	flight *inFlight
	state  *unitState // state of the unit that records
	// weightsToo says that this layer's weight gradient is requested right after its input
	// gradient. Then the input gradient may record parts of it while it waits for other ranks.
	weightsToo bool
	turn       *turn      // of a pass that is recorded together with others; nil: it is alone
	gathering  *gathering // of weights of which ranks keep parts; nil: there are none, or the pass needs none
	times      *PartTimes // of its action; nil: it is not timed
	// firstRow is the first row of the microbatch that a linear layer computes, if these are not all.
	firstRow int
}

// inFlight is a microbatch between its forward and its weight gradient.
type inFlight struct {
	mb              Microbatch // with this rank's positions
	ownTokens       []int32    // token ids of this rank's positions, if these are not all
	ownTargets      []int32
	ownStarts       []int32
	starts, ofPairs tensorops.Tensor // see uploadStarts
	pairStarts      []int32          // what ofPairs has
	ownRows         []int32          // starts of this rank's rows of the residual stream
	states          []state
	tokens, targets tensorops.Tensor
	fields          []holding // as chunk.fields
	values, grads   []holding // by value of the chunk
	outputs         []Output
	input           bool // the input gradient was recorded
	adapted         map[*adapter]adapted
	pass            pass
}

func (s *Stage) find(chunk, index int) (*chunk, *inFlight) {
	c := s.chunks[chunk]
	if c == nil {
		return nil, nil
	}
	return c, c.live[index]
}

// acquire returns an unused one, with states for every layer.
func (c *chunk) acquire() *inFlight {
	if k := len(c.spare) - 1; k >= 0 {
		f := c.spare[k]
		c.spare = c.spare[:k]
		return f
	}
	f := &inFlight{values: make([]holding, c.values), grads: make([]holding, c.values)}
	for _, l := range c.layers {
		f.states = append(f.states, l.newState())
	}
	return f
}

// release ends a microbatch in flight.
func (c *chunk) release(l *tensorops.List, f *inFlight) {
	free(l, &f.tokens, &f.targets)
	f.freeStarts(l)
	f.freeFields(l)
	for _, s := range f.adapted { // those of an aborted microbatch
		s.free(l)
	}
	clear(f.adapted)
	delete(c.live, f.mb.Index)
	f.input = false
	f.mb.Tokens, f.mb.Targets, f.mb.Starts, f.mb.Fields, f.outputs = nil, nil, nil, nil, nil
	if !c.queued {
		c.spare = append(c.spare, f)
	}
}

// newPass prepares its pass for recording into a list.
func (f *inFlight) newPass(s *Stage, l *tensorops.List, c *chunk) *pass {
	f.pass = pass{List: l, stage: s, mb: &f.mb, chunk: c, flight: f, tokens: f.tokens, targets: f.targets, starts: f.starts,
		turn: s.turn, times: s.times}
	return &f.pass
}

// ids uploads token ids; their number must be the microbatch's.
func (c *pass) ids(host []int32) tensorops.Tensor {
	t := c.Alloc(tensorops.Int32, c.mb.Sequences, c.mb.Positions)
	c.Upload(t, tensorops.HostBytes(host))
	return t
}

func (c *pass) hold(t tensorops.Tensor) holding { return c.stage.boxes.hold(t) }

func (c *pass) weight(u use) tensorops.Tensor { return c.stage.byParam[u.param.Index].w }

func (c *pass) grad(u use) tensorops.Tensor { return c.stage.byParam[u.param.Index].g[u.place] }

// rowGrad returns the row gradient of a use; nil: its gradient is whole.
func (c *pass) rowGrad(u use) *rowGrad { return c.stage.byParam[u.param.Index].rows[u.place] }

// rows returns N.
func (c *pass) rows() int { return c.mb.Sequences * c.mb.Positions }

// site is a place in the model where dropout acts.
type site struct {
	name string
	p    float64
}

// drops reports whether dropout acts at a site; outside of training it never does.
func (c *pass) drops(s site) bool { return c.mb.Train && s.p > 0 }

// mask identifies the random bits of this microbatch at a site, starting with those of its first
// sequence. Each sequence has perSequence addresses there. That number must be the same in all
// microbatches of a run. If it varied, for example with the number of positions, sequences of a
// step would share bits, and an element's bits would depend on its microbatch.
func (c *pass) mask(s site, perSequence int) tensorops.Mask {
	if !c.drops(s) {
		return tensorops.Mask{}
	}
	return tensorops.Mask{
		Key:   rng.NewKey(c.stage.opts.Seed, rng.StringStream("dropout/"+s.name)),
		Step:  uint64(c.mb.Step),
		First: uint64(c.mb.FirstSequence) * uint64(perSequence),
		P:     s.p,
	}
}

// places returns the number of positions that a sequence has in the addresses of random bits,
// whatever a microbatch's length: the longest. A longer microbatch was padded, and nothing is
// learned from the padding.
func (c *pass) places() int { return max(c.stage.model.Config.Context, c.whole()) }

// whole returns the number of positions of the microbatch's sequences, on all ranks together.
func (c *pass) whole() int { return c.mb.Positions * c.stage.opts.Context.size() }

// free frees tensors and invalidates them, so that a state can be reused.
func free(l *tensorops.List, ts ...*tensorops.Tensor) {
	for _, t := range ts {
		l.Free(*t)
		*t = tensorops.Tensor{}
	}
}
