package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/plan"
)

// TestReady: a worker that is not ready long after the first one is lost, with the reason. While none is ready, the run waits
// for all, and says for how long.
func TestReady(t *testing.T) {
	after := func(s ...float64) []float64 { return s }
	for _, test := range []struct {
		name   string
		ready  []float64 // seconds, of each worker; 0: never
		ends   float64
		lost   string
		says   int // how often it says what it waits for
		failed bool
	}{
		{"both at once", after(1, 1), 1, "", 0, false},
		{"both late", after(500, 501), 501, "", 6, false},
		{"one is late", after(1, 100), 100, "", 4, false},
		{"one never", after(1, 0), 1 + readyTime.Seconds(),
			"worker w1 at x:1 with rank 1 failed: it was still not ready to compute 120 s after the first worker was", 4, false},
		{"one can't", after(1, 2), 2, "", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				a := &attempt{c: &Coordinator{}, answers: make(chan answer, len(test.ready)), gone: make(chan struct{}),
					tellWaiting: func(text string) { said = append(said, text) }, cuts: &cuts{}}
				for i, s := range test.ready {
					id := uuid.New()
					a.shares = append(a.shares, &share{Member: beat.Member{ID: id, Name: fmt.Sprint("w", i), Address: fmt.Sprint("x:", i)},
						ranks: []int{i}})
					if s == 0 {
						continue
					}
					time.AfterFunc(time.Duration(s*float64(time.Second)), func() {
						got := answer{from: id}
						if test.failed && i == 1 {
							got.error = "no GPU"
						}
						a.answers <- got
					})
				}
				var ready []uuid.UUID
				began := time.Now()
				err := a.ready(t.Context(), func(got answer) { ready = append(ready, got.from) })
				if took := time.Since(began).Seconds(); took != test.ends {
					t.Errorf("it ends after %g s, want %g", took, test.ends)
				}
				var lost *plan.LostError
				var refused *workerError
				switch {
				case test.lost != "" && (!errors.As(err, &lost) || err.Error() != test.lost || !slices.Equal(lost.Ranks, []int{1})):
					t.Errorf("it ends with %v, want %s", err, test.lost)
				case test.failed && !errors.As(err, &refused), test.lost == "" && !test.failed && (err != nil || len(ready) != len(test.ready)):
					t.Errorf("it ends with %v, and %d are ready", err, len(ready))
				}
				if test.lost != "" {
					test.says++ // that it is lost
				}
				if len(said) != test.says {
					t.Errorf("it says %q, want %d texts", said, test.says)
				}
			})
		})
	}
}

// TestReadyRenewed: a worker that has lost the ranks that it should have kept has failed, and the attempt begins without it. One that can't
// compute ranks for another reason, such as its memory, ends the renewal, also if it has kept some.
func TestReadyRenewed(t *testing.T) {
	for _, c := range []struct {
		worker int // 0 has kept its rank, 1 gets it from another
		unkept bool
		fails  bool
	}{{0, true, false}, {0, false, true}, {1, false, true}} {
		said := 0
		a := &attempt{c: &Coordinator{}, answers: make(chan answer, 4), gone: make(chan struct{}), tellWaiting: func(string) { said++ },
			cuts: &cuts{}, renewal: &renewal{lost: []int{1}}}
		for i := range 2 {
			a.shares = append(a.shares, &share{Member: beat.Member{ID: uuid.New(), Name: fmt.Sprint("w", i)}, ranks: []int{i}})
		}
		of := a.shares[c.worker]
		for _, s := range a.shares {
			got := answer{from: s.ID}
			if s == of {
				got.error, got.unkept = "why", c.unkept
			}
			a.answers <- got
		}
		a.answers <- answer{from: uuid.New()} // of no worker of the attempt
		var ready []uuid.UUID
		err := a.ready(t.Context(), func(got answer) { ready = append(ready, got.from) })
		if !c.fails {
			if err != nil || !of.lost || said != 1 || !slices.Equal(ready, []uuid.UUID{a.shares[1].ID}) ||
				!strings.Contains(of.why.Error(), "why") {
				t.Errorf("it ends with %v, %d are ready; the worker is lost: %t, %v", err, len(ready), of.lost, of.why)
			}
		} else if refused := (*workerError)(nil); !errors.As(err, &refused) || of.lost {
			t.Errorf("%+v: it ends with %v, the worker is lost: %t", c, err, of.lost)
		}
	}
}
