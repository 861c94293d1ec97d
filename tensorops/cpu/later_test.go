package cpu_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// held is a group whose collectives end when the test says so.
type held struct {
	tensorops.Solo
	dones chan func(error)
}

func (h held) Start(_ *tensorops.Op, done func(error)) { h.dones <- done }

var errHeld = errors.New("held")

// What stands between Begin and Await is computed while the collective goes on, what follows
// only then. A list without Await ends when its collectives have, and with their error.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		name  string
		await bool
		err   error
	}{{"awaited", true, nil}, {"awaited, failed", true, errHeld}, {"not awaited", false, nil}, {"not awaited, failed", false, errHeld}} {
		dev := open(t, 2, "")
		s := dev.NewStream("begin")
		group := held{dones: make(chan func(error), 2)}
		l := s.NewList()
		x, y := l.Alloc(tensorops.Float32, 4), l.Alloc(tensorops.Float32, 4)
		computed := make(chan struct{})
		var seen []string
		note := func(what string) {
			l.Call(tensorops.Call{Name: what, Func: func(_, _ []tensorops.Array) error {
				if seen = append(seen, what); what == "between" {
					close(computed)
				}
				return nil
			}})
		}
		for _, to := range []tensorops.Tensor{x, y} {
			l.Begin(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: to, Src: to, Group: group})
		}
		note("between")
		if c.await {
			l.Await()
			note("after")
		}
		l.Free(x)
		l.Free(y)
		ended := make(chan error, 1)
		s.Submit(l, func(err error) { ended <- err })
		<-computed
		select {
		case err := <-ended:
			t.Errorf("%s: the list ended while its collectives went on: %v", c.name, err)
		default:
		}
		(<-group.dones)(c.err)
		(<-group.dones)(nil)
		if err := <-ended; !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
		}
		want := []string{"between"}
		if c.await && c.err == nil {
			want = append(want, "after")
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: %q was computed, want %q", c.name, seen, want)
		}
		s.Close()
	}
}
