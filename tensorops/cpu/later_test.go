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

// TestAwaitOne: a list that waits for one collective computes what follows while the others continue. It ends when all have, with the
// error of the one that failed, whether it waits for that one or for another.
func TestAwaitOne(t *testing.T) {
	for _, c := range []struct {
		name   string
		waits  []int // numbers, in the order of the list
		ends   []int // numbers, in the order in which the collectives end
		fails  int   // number; 0: none
		during []int // by wait: how many of ends there are before what follows it is computed
	}{
		{"in order", []int{1, 2}, []int{1, 2, 3}, 0, []int{1, 2}},
		{"the second first", []int{2, 1}, []int{2, 3, 1}, 0, []int{1, 3}},
		{"one ends early", []int{2}, []int{1, 3, 2}, 0, []int{3}},
		{"the awaited fails", []int{2, 1}, []int{2, 1, 3}, 2, nil},
		{"another fails", []int{2}, []int{2, 1, 3}, 1, []int{1}},
	} {
		s := open(t, 2, "").NewStream("one")
		group := held{dones: make(chan func(error), 3)}
		l := s.NewList()
		x := l.Alloc(tensorops.Float32, 3, 4)
		for i := range 3 {
			row := x.RowRange(i, i+1)
			l.Begin(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: row, Src: row, Group: group})
		}
		computed := make(chan int, len(c.waits))
		for i, number := range c.waits {
			l.AwaitOne(number)
			l.Call(tensorops.Call{Name: "what follows", Func: func(_, _ []tensorops.Array) error { computed <- i; return nil }})
		}
		l.Free(x)
		ended := make(chan error, 1)
		s.Submit(l, func(err error) { ended <- err })
		dones := []func(error){<-group.dones, <-group.dones, <-group.dones}
		next := 0
		for k, number := range c.ends {
			var err error
			if number == c.fails {
				err = errHeld
			}
			select {
			case <-computed:
				t.Errorf("%s: something was computed before collective %d ended", c.name, number)
			case err := <-ended:
				t.Errorf("%s: the list ended before collective %d: %v", c.name, number, err)
			default:
			}
			dones[number-1](err)
			for ; next < len(c.during) && c.during[next] == k+1; next++ {
				if i := <-computed; i != next {
					t.Errorf("%s: what follows wait %d was computed, want %d", c.name, i, next)
				}
			}
		}
		var want error
		if c.fails > 0 {
			want = errHeld
		}
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", c.name, err, want)
		}
		if n := len(computed); n > 0 {
			t.Errorf("%s: %d more were computed", c.name, n)
		}
		s.Close()
	}
}

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
