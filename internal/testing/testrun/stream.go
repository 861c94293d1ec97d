package testrun

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/data/samples"
)

// counting is a stream of numbers on a line; a failing one ends early.
type counting struct{ next, fails int64 }

func (c *counting) Fields() []samples.Field {
	return []samples.Field{{Name: "x", Shape: []int{2}}, {Name: "y", Shape: []int{1}}}
}

func (c *counting) Next() (samples.Sample, error) {
	if c.next == c.fails {
		return nil, fmt.Errorf("the tape is torn: %w", io.ErrNoProgress)
	}
	x := float32(c.next%17) / 17
	c.next++
	return samples.Sample{{Shape: []int{2}, Float: []float32{x, 1}}, {Shape: []int{1}, Float: []float32{3*x - 1}}}, nil
}

func (*counting) Close() error { return nil }

// Streams for StreamRun: test-tape has no positions, test-torn fails.
func init() {
	for name, c := range map[string]struct {
		seekable bool
		fails    int64
	}{"test-stream": {true, -1}, "test-tape": {false, -1}, "test-torn": {true, 50}} {
		samples.RegisterStream(name, func(samples.Options) (samples.OpenStream, bool, samples.Dataset, error) {
			return func(position int64) (samples.Stream, error) { return &counting{position, c.fails}, nil }, c.seekable, nil, nil
		})
	}
}
