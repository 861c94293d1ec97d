package optest

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// Run holds a device to everything that tensorops promises. It uses streams of
// its own and leaves dev open.
func Run[S Subtests[S]](t S, dev tensorops.Device, opt Options) {
	if opt.Oracle == nil {
		opt.Oracle = new(Oracle)
	}
	before := dev.Memory().InUse
	t.Run("cases", func(t S) { RunCases(t, dev, opt) })
	t.Run("errors", func(t S) { runErrors(t, dev) })
	t.Run("streams", func(t S) { runStreams(t, dev) })
	if after := dev.Memory().InUse; after != before {
		t.Errorf("%d bytes of memory in use, %d before: something leaked", after, before)
	}
}

// RunCases holds a device to the table of cases, and nothing else of Run.
func RunCases[S Subtests[S]](t S, dev tensorops.Device, opt Options) {
	if opt.Oracle == nil {
		opt.Oracle = new(Oracle)
	}
	s := dev.NewStream("optest")
	defer s.Close()
	for _, c := range Cases(opt) {
		t.Run(c.Name, func(t S) {
			if err := c.compare(s, opt.Oracle, opt.widens(c.Kind)); err != nil {
				t.Error(err)
			}
		})
	}
}
