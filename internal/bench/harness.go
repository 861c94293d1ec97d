package bench

import (
	"math"
	"time"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops"
)

// Minimum duration of a sample, so that starting and ending it do not matter. A GPU takes longer to start.
const (
	leastSample    = 2 * time.Millisecond
	leastSampleGPU = 20 * time.Millisecond
)

// harness is a device with one stream to measure on.
type harness struct {
	dev    device.Device
	stream tensorops.Stream
	noise  tensorops.Tensor // noiseLen random numbers
	least  time.Duration
}

// newHarness takes ownership of a device.
func newHarness(dev device.Device) (*harness, error) {
	b := &harness{dev: dev, stream: dev.NewStream("bench"), least: leastSample}
	if dev.Name() == "cuda" {
		b.least = leastSampleGPU
	}
	noise := make([]float32, noiseLen)
	rng.Normal(noise, rng.NewKey(1, rng.StringStream("bench")), 0, 0, 1)
	var err error
	if b.noise, err = b.upload(tensorops.Float32, tensorops.HostBytes(noise), noiseLen); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// noiseLen is the number of random numbers. Tensors repeat them, since drawing all would take longer than the measurement.
const noiseLen = 1<<16 - 1

func (b *harness) close() {
	b.noise.Release()
	b.dev.Close()
}

// timed returns a function that runs the recorded operations n times in one list and returns the duration.
func (b *harness) timed(record func(l *tensorops.List)) func(n int) (time.Duration, error) {
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

// make creates a tensor and fills it with a list.
func (b *harness) make(d tensorops.DType, fill func(l *tensorops.List, t tensorops.Tensor), dims ...int) (tensorops.Tensor, error) {
	t, err := tensorops.NewTensor(b.stream.Arena(), d, dims...)
	if err != nil {
		return t, err
	}
	l := b.stream.NewList()
	fill(l, t)
	if err := tensorops.Run(b.stream, l); err != nil {
		t.Release()
		return tensorops.Tensor{}, err
	}
	return t, nil
}

// upload copies host memory into a new tensor.
func (b *harness) upload(d tensorops.DType, host []byte, dims ...int) (tensorops.Tensor, error) {
	return b.make(d, func(l *tensorops.List, t tensorops.Tensor) { l.Upload(t, host) }, dims...)
}

// numbers returns a tensor of normally distributed numbers. With zeros or powers of two, a processor may draw less power and run
// faster.
func (b *harness) numbers(d tensorops.DType, dims ...int) (tensorops.Tensor, error) {
	noise := b.noise.View(1, noiseLen)
	return b.make(d, func(l *tensorops.List, t tensorops.Tensor) {
		together := max(1, math.MaxInt32/t.Cols()) // rows, of which a view is no longer than a view may be
		for first := 0; first < t.Rows(); first += together {
			rows := t.RowRange(first, min(first+together, t.Rows()))
			line := rows.View(1, rows.Len())
			for at := 0; at < line.Len(); at += noiseLen {
				n := min(noiseLen, line.Len()-at)
				l.Copy(line.Columns(at, at+n), noise.Columns(0, n))
			}
		}
	}, dims...)
}
