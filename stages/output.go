package stages

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/caught"
	"github.com/troupe-ml/troupe/tensorops"
)

// Output is a tensor that a forward-only run collects, such as a classifier's predictions.
type Output struct {
	Name string
	tensorops.Array
}

// Outputs returns what a chunk has collected of a microbatch, after its list has completed.
func (s *Stage) Outputs(chunk, index int) []Output {
	_, f := s.find(chunk, index)
	if f == nil {
		return nil
	}
	return f.outputs
}

// collect copies a tensor to host memory if the run collects outputs.
func (p *pass) collect(name string, t tensorops.Tensor) {
	if p.Err() != nil || p.flight == nil || !p.mb.Collect || !t.Valid() {
		return
	}
	if slices.ContainsFunc(p.flight.outputs, func(o Output) bool { return o.Name == name }) {
		p.Fail(fmt.Errorf("%w: two outputs are called %q", ErrModel, name))
		return
	}
	o := Output{Name: name, Array: tensorops.NewArray(t.DType(), t.Shape())}
	if t.DType() == tensorops.BFloat16 { // arrays hold float32
		wide := p.Alloc(tensorops.Float32, t.Shape()...)
		p.Copy(wide, t)
		p.Fetch(o.Bytes(), wide)
		p.Free(wide)
	} else {
		p.Fetch(o.Bytes(), t)
	}
	p.flight.outputs = append(p.flight.outputs, o)
}

// open opens the layers that need it.
func (s *Stage) open() error {
	for _, c := range s.order {
		for _, l := range c.layers {
			u, ok := l.(*unit)
			if !ok {
				continue
			}
			if o, ok := u.layer.(Opener); ok {
				open, err := openLayer(o)
				if err != nil {
					return fmt.Errorf("open layer %s: %w", u.name, err)
				}
				s.opened[u] = open
				if _, ok := open.(LossLayer); !ok && u.sym == SymbolLoss {
					return fmt.Errorf("%w: open layer %s: Open returned a %T, which is not a LossLayer", ErrModel, u.name, open)
				}
			}
		}
	}
	return nil
}

// openLayer opens one layer. It turns a panic into an error, so that layers opened before are
// closed.
func openLayer(o Opener) (open OpenLayer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught.Panic(v)
		}
	}()
	if open, err = o.Open(); err == nil && open == nil {
		err = fmt.Errorf("%w: Open returned neither a layer nor an error", ErrModel)
	}
	return open, err
}

// closeLayer closes one layer. It turns a panic into an error, since nothing would recover it
// there.
func closeLayer(o OpenLayer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught.Panic(v)
		}
	}()
	return o.Close()
}

// Close closes what the program's own layers have opened. Call it when no list of the stage is on
// the device any more. The tensors stay allocated.
func (s *Stage) Close() error {
	if s == nil { // NewStage returned it with an error, and it was put into an interface
		return nil
	}
	var errs []error
	for u, o := range s.opened {
		if err := closeLayer(o); err != nil {
			errs = append(errs, fmt.Errorf("close layer %s: %w", u.name, err))
		}
	}
	clear(s.opened)
	return errors.Join(errs...)
}

// layerOf returns a unit's layer as this stage opened it.
func (p *pass) layerOf(u *unit) Layer {
	if o := p.stage.opened[u]; o != nil {
		return o
	}
	return u.layer
}

// report returns the report of the loss layer.
func (s *Stage) report(c *chunk, f *inFlight) Report {
	last := len(c.layers) - 1
	u, ok := c.layers[last].(*unit)
	if !ok {
		return Report{}
	}
	st := f.states[last].(*unitState)
	p := f.newPass(s, nil, c)
	defer func() {
		if v := recover(); v != nil {
			panic(&LayerError{u.name, passReport, f.mb.Index, caught.Panic(v)})
		}
	}()
	return p.layerOf(u).(LossLayer).Report(&Pass{c: p, unit: u, st: st})
}
