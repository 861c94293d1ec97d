package optest

import (
	"bytes"
	"sync/atomic"

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
			other, err := newBusy(dev)
			if err != nil {
				t.Fatalf("busy stream: %v", err)
			}
			s := dev.NewStream("optest")
			for i, c := range cases {
				var got []*output
				var err error
				if run.busy {
					if failed := other.beside(func() { got, err = c.run(s) }); failed != nil {
						t.Fatalf("busy stream: %v", failed)
					}
				} else {
					got, err = c.run(s)
				}
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
			if err := other.close(); err != nil {
				t.Errorf("busy stream: %v", err)
			}
		})
	}
}

// busy multiplies matrices on a stream of its own.
type busy struct {
	stream  tensorops.Stream
	x, y, z tensorops.Tensor
}

// limitProducts is how many products there are beside one case at most.
const limitProducts = 8

func newBusy(dev tensorops.Device) (*busy, error) {
	s := dev.NewStream("busy")
	b := newBuilder(s, "busy")
	w := &busy{s, b.garbage(100, 200), b.normal(100, 150), b.normal(150, 200)}
	return w, tensorops.Run(s, b.List)
}

func (w *busy) close() error {
	l := w.stream.NewList()
	for _, t := range []tensorops.Tensor{w.x, w.y, w.z} {
		l.Free(t)
	}
	err := tensorops.Run(w.stream, l)
	w.stream.Close()
	return err
}

// beside calls f while products are computed, one after the other.
func (w *busy) beside(f func()) error {
	var over atomic.Bool
	failed := make(chan error, 1)
	go func() { // ends soon after f
		var err error
		for n := 0; n < limitProducts && err == nil && (n == 0 || !over.Load()); n++ {
			l := w.stream.NewList()
			l.MatMul(w.x, w.y, w.z, tensorops.MatMulOpts{})
			err = tensorops.Run(w.stream, l)
		}
		failed <- err
	}()
	f()
	over.Store(true)
	return <-failed
}
