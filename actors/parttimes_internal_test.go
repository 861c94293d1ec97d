package actors

import (
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// TestPartsFillList: of actions that ran as one, the part that began first is the one that begins with the list, whichever action it is of.
func TestPartsFillList(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	parts := func(ms ...int) (all []scheduler.PartTime) {
		for ; len(ms) > 0; ms = ms[2:] {
			all = append(all, scheduler.PartTime{Start: at(ms[0]), End: at(ms[1])})
		}
		return all
	}
	for _, c := range []struct {
		name      string
		got, want [][]scheduler.PartTime // of a forward and a backward
	}{
		{"the forward first", [][]scheduler.PartTime{parts(2, 4, 7, 9), parts(5, 6, 10, 12)},
			[][]scheduler.PartTime{parts(0, 4, 7, 9), parts(5, 6, 10, 15)}},
		{"the backward first", [][]scheduler.PartTime{parts(5, 6, 10, 12), parts(2, 4, 7, 9)},
			[][]scheduler.PartTime{parts(5, 6, 10, 15), parts(0, 4, 7, 9)}},
		{"alone", [][]scheduler.PartTime{parts(1, 2, 3, 4)}, [][]scheduler.PartTime{parts(0, 2, 3, 15)}},
	} {
		fill(c.got, at(0), at(15))
		if !slices.EqualFunc(c.got, c.want, slices.Equal[[]scheduler.PartTime]) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}
