package fanout

import (
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lost makes a value of how many were.
func lost(n int) int { return -n }

func same(v int) func(int) int { return func(int) int { return v } }

// TestFeed: readers get what comes while they read, in order; one whose queue is full loses what is not needed
// and is told how much.
func TestFeed(t *testing.T) {
	const room = reserve + 4
	f := New(room, lost)
	f.Publish(false, same(100)) // nobody reads
	a := f.Subscribe()
	for i := range room + 3 {
		f.Publish(false, same(i))
	}
	f.Publish(true, same(50))
	var got []int
	for range 5 {
		got = append(got, <-a.Values())
	}
	if want := []int{0, 1, 2, 3, 50}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.Publish(false, same(60))
	if got = []int{<-a.Values(), <-a.Values()}; !slices.Equal(got, []int{-(room + 3 - 4), 60}) {
		t.Errorf("%v", got)
	}
	f.Publish(false, func(waiting int) int { return waiting })
	if v := <-a.Values(); v != 0 {
		t.Errorf("%d wait", v)
	}
	if f.Readers() != 1 {
		t.Errorf("%d readers", f.Readers())
	}
	b := f.Subscribe()
	a.Close()
	a.Close()
	if _, more := <-a.Values(); more {
		t.Error("a closed reader gets more")
	}
	for i := range 2 * room {
		f.Publish(true, same(i))
	}
	<-b.Values()
	f.Close()
	f.Close()
	n, last := 0, 0
	for v := range b.Values() {
		n, last = n+1, v
	}
	if n != room || last != -room {
		t.Errorf("%d values, the last %d", n, last)
	}
	b.Close()
	if _, more := <-f.Subscribe().Values(); more {
		t.Error("a closed feed has more")
	}
}

// TestAtOnce: readers come, read and go while values are published.
func TestAtOnce(t *testing.T) {
	f := New(64, lost)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() { // ends with the feed
			defer all.Done()
			for range 20 {
				r := f.Subscribe()
				<-r.Values()
				r.Close()
			}
			for range f.Subscribe().Values() {
			}
		}()
	}
	for i := range 20_000 {
		f.Publish(i%3 == 0, same(i))
	}
	f.Close()
	all.Wait()
}
