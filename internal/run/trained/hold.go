package trained

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// Hold returns a model on its own CPU device; the caller copies the weights to Weights. text encodes its
// texts; it is nil without a tokenizer.
func Hold(shape *stages.Model, tok tokenizer.Tokenizer, text *corpus.Text, o config.Device) (t *Model, err error) {
	need, free := float64(4*shape.Config.Parameters()), float64(device.HostFreeBytes())
	if free > 0 && need > free {
		return nil, fmt.Errorf("%w: a snapshot of %d parameters needs %s, but this machine has %s free", plan.ErrMemory,
			shape.Config.Parameters(),
			plan.GiB(need), plan.GiB(free))
	}
	t = &Model{Shape: shape, Tokenizer: tok, text: text, warned: true}
	if t.Device, err = device.OpenKind(device.Options{Threads: o.Threads, Kernels: o.Kernels}); err != nil {
		return nil, err
	}
	plan.SetPrecision(&t.Precision, &config.Config{Model: config.Model{Family: shape.Config.Family}, Device: o})
	if t.Weights, err = t.empty(t.Device.NewStream("snapshot")); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}
