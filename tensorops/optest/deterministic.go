package optest

import (
	"bytes"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// Deterministic runs every case on a device of one thread, and on one of three while another
// stream keeps it busy. Both must give the same bits. mk makes a device, which is closed at
// the end.
func Deterministic[S Subtests[S]](t S, mk func(threads int) tensorops.Device, opt Options) {
	cases := Cases(opt)
	var want [][]*output
	for _, run := range []struct {
		name    string
		threads int
		busy    bool
	}{
		{"1 thread", 1, false},
		{"3 threads, busy", 3, true},
	} {
		t.Run(run.name, func(t S) {
			dev := mk(run.threads)
			defer dev.Close()
			if run.busy {
				defer keepBusy(t, dev)()
			}
			s := dev.NewStream("optest")
			for i, c := range cases {
				got, err := c.run(s)
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				if len(want) == i {
					want = append(want, got)
				}
				for j, o := range got {
					if !bytes.Equal(o.host, want[i][j].host) {
						t.Errorf("%s: %s differs in its bits from the first run's", c.Name, o.name)
					}
				}
			}
		})
	}
}

// keepBusy multiplies matrices on a stream of its own until the function that it
// returns is called.
func keepBusy(t T, dev tensorops.Device) (stop func()) {
	s := dev.NewStream("busy")
	quit := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			b := newBuilder(s, "busy")
			b.MatMul(b.garbage(100, 200), b.normal(100, 150), b.normal(150, 200), tensorops.MatMulOpts{})
			if _, err := b.run(s); err != nil {
				t.Errorf("busy stream: %v", err)
				return
			}
		}
	})
	return func() {
		close(quit)
		ended.Wait()
		s.Close()
	}
}
