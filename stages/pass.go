package stages

import (
	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// pass is what a layer sees while it records one pass of one microbatch.
type pass struct {
	*tensorops.List
	stage *Stage
	mb    *Microbatch
	// The microbatch's token ids and targets on the device; none in chunks that
	// neither embed nor lose.
	tokens, targets tensorops.Tensor

	chunk  *chunk // nil in generation
	flight *inFlight
	state  *unitState // of the unit that records
	// weightsToo says that this layer's weight gradient is asked for right after its input
	// gradient, which may then record parts of it while it waits for other ranks.
	weightsToo bool
}

func (c *pass) hold(t tensorops.Tensor) holding { return c.stage.boxes.hold(t) }

func (c *pass) weight(u use) tensorops.Tensor { return c.stage.byParam[u.param.Index].w }

func (c *pass) grad(u use) tensorops.Tensor { return c.stage.byParam[u.param.Index].g[u.place] }

// rowGrad is the gradient of a use by rows; nil: it is whole.
func (c *pass) rowGrad(u use) *rowGrad { return c.stage.byParam[u.param.Index].rows[u.place] }

// rows is N.
func (c *pass) rows() int { return c.mb.Sequences * c.mb.Positions }

// site is a place of the model where dropout acts.
type site struct {
	name string
	p    float64
}

// mask names the random bits of this microbatch at a site, with each sequence
// having perSequence elements there. Outside of training nothing is dropped.
func (c *pass) mask(s site, perSequence int) tensorops.Mask {
	if !c.mb.Train || s.p == 0 {
		return tensorops.Mask{}
	}
	return tensorops.Mask{
		Key:   rng.NewKey(c.stage.opts.Seed, rng.StringStream("dropout/"+s.name)),
		Step:  uint64(c.mb.Step),
		First: uint64(c.mb.FirstSequence) * uint64(perSequence),
		P:     s.p,
	}
}

// free frees tensors and forgets them, so that a state can be used again.
func free(l *tensorops.List, ts ...*tensorops.Tensor) {
	for _, t := range ts {
		l.Free(*t)
		*t = tensorops.Tensor{}
	}
}
