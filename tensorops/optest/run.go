package optest

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// Run holds a device to everything that tensorops promises. It uses streams of
// its own and leaves dev open.
func Run(t *testing.T, dev tensorops.Device, opt Options) {
	oracle := ref.New()
	defer oracle.Close()
	before := dev.Memory().InUse
	t.Run("cases", func(t *testing.T) {
		s, o := dev.NewStream("optest"), oracle.NewStream("oracle")
		defer s.Close()
		for _, c := range Cases(opt) {
			t.Run(c.Name, func(t *testing.T) {
				widen := 1.0
				if w, ok := opt.Widen[c.Kind]; ok {
					widen = w
				}
				if err := c.compare(s, o, widen); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("errors", func(t *testing.T) { runErrors(t, dev) })
	t.Run("streams", func(t *testing.T) { runStreams(t, dev) })
	if after := dev.Memory().InUse; after != before {
		t.Errorf("%d bytes of memory in use, %d before: something leaked", after, before)
	}
}
