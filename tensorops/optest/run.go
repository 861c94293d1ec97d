package optest

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// Run holds a device to everything that tensorops promises. It uses streams of
// its own and leaves dev open.
func Run(t *testing.T, dev tensorops.Device, opt Options) {
	if opt.Oracle == nil {
		opt.Oracle = new(Oracle)
	}
	before := dev.Memory().InUse
	t.Run("cases", func(t *testing.T) { RunCases(t, dev, opt) })
	t.Run("errors", func(t *testing.T) { runErrors(t, dev) })
	t.Run("streams", func(t *testing.T) { runStreams(t, dev) })
	if after := dev.Memory().InUse; after != before {
		t.Errorf("%d bytes of memory in use, %d before: something leaked", after, before)
	}
}

// RunCases holds a device to the table of cases, and nothing else of Run.
func RunCases(t *testing.T, dev tensorops.Device, opt Options) {
	if opt.Oracle == nil {
		opt.Oracle = new(Oracle)
	}
	s := dev.NewStream("optest")
	defer s.Close()
	for _, c := range Cases(opt) {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.compare(s, opt.Oracle, opt.widens(c.Kind)); err != nil {
				t.Error(err)
			}
		})
	}
}
