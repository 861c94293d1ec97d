package bench

import (
	"time"

	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// leastSample is how long a sample of operations takes at least: long enough that
// starting and ending it don't show.
const leastSample = 2 * time.Millisecond

// bed is a device with one stream to measure on.
type bed struct {
	dev    *cpu.Device
	stream tensorops.Stream
	noise  []float32
}

func newBed(o cpu.Options) (*bed, error) {
	dev, err := cpu.New(o)
	if err != nil {
		return nil, err
	}
	b := &bed{dev, dev.NewStream("bench"), make([]float32, noiseLen)}
	rng.Normal(b.noise, rng.NewKey(1, rng.StringStream("bench")), 0, 0, 1)
	return b, nil
}

// noiseLen is how many numbers are drawn; tensors repeat them, since drawing all
// would take longer than to measure.
const noiseLen = 1<<16 - 1

func (b *bed) close() { b.dev.Close() }

// timed returns a function that executes n times what is recorded, in one list,
// and tells how long that took.
func (b *bed) timed(record func(l *tensorops.List)) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		l := b.stream.NewList()
		for range n {
			record(l)
		}
		began := time.Now()
		err := tensorops.Run(b.stream, l)
		return time.Since(began), err
	}
}

// floats makes a tensor of normally distributed numbers: with zeros or powers of
// two a processor may draw less power, and run faster.
func (b *bed) floats(dims ...int) (tensorops.Tensor, error) {
	t, err := tensorops.NewTensor(b.stream.Arena(), tensorops.Float32, dims...)
	if err != nil {
		return t, err
	}
	for to := tensorops.Elements[float32](t); len(to) > 0; {
		to = to[copy(to, b.noise):]
	}
	return t, nil
}
