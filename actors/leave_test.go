package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestLeave: ranks whose process leaves are kept as the others are. If a process fails that has their state, they count as not lost. The
// failure comes first in the outcome.
func TestLeave(t *testing.T) {
	errLeaves, errHolder := errors.New("leaves"), errors.New("not in another process")
	for _, c := range []struct {
		name  string
		fails int      // rank; −1: none
		asked []string // ranks for which Keep is called
		keeps bool
		first error
		ranks []int
	}{
		{"no other fails", -1, []string{"[1]"}, true, errLeaves, []int{1}},
		{"the holder fails", 2, []string{"[1]", "[2 1]", "[2]"}, true, errLost, []int{2, 1}},
		{"a rank fails without which nothing is kept", 0, []string{"[1]", "[0 1]", "[0]"}, false, errLost, []int{0, 1}},
		{"it fails itself", 1, []string{"[1]", "[1]"}, true, errLost, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := training{model: small(families[0]), threads: 1, steps: 1 << 40, cuts: []int{2, 3},
				table: generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: sequences / microbatchSize})}
			parts := make(map[string]*actors.Stages)
			tr.started = func(host string, s *actors.Stages) { parts[host] = s }
			hold := make(chan struct{}) // so that the attempt does not end before the other process fails
			tr.sending = func(m any) {
				if fmt.Sprintf("%T", m) == "*actors.halted" {
					<-hold
				}
			}
			l := &log{}
			var asked []string
			run, end := tr.startOver(t, l, []string{"a", "b", "c"}, func(host string, s *actors.Spec) {
				if host != "" {
					return
				}
				s.Keep = func(lost []int) error {
					asked = append(asked, fmt.Sprint(lost))
					if slices.Contains(lost, 0) || slices.Contains(lost, 1) && slices.Contains(lost, 2) {
						return errHolder
					}
					return nil
				}
			})
			eventually(t, run, "a step", func() bool { return len(eventsOf[event.StepEvent](l)) > 2 })
			run.Leave([]int{1}, errLeaves)
			if c.fails >= 0 {
				run.Lost([]int{c.fails}, errLost)
			}
			close(hold)
			out := wait(t, run)
			hosts := map[string]int{"a": 0, "b": 1, "c": 2}
			for host, rank := range hosts {
				if rank != c.fails {
					parts[host].Wait()
				}
			}
			end()
			if (out.Carry != nil) != c.keeps || !slices.Equal(asked, c.asked) || !slices.Equal(out.Lost, c.ranks) {
				t.Errorf("carry %t (%v), ranks %d are lost, want %d; Keep was asked for %s, want %s", out.Carry != nil, out.Unkept,
					out.Lost, c.ranks, asked, c.asked)
			}
			if !errors.Is(out.Err, errLeaves) || !errors.Is(out.Err, c.first) || out.Err.Error()[:4] != c.first.Error()[:4] {
				t.Errorf("the outcome is %v, want %v first", out.Err, c.first)
			}
			for host, rank := range hosts {
				kept := parts[host].Kept()
				for _, k := range kept {
					if err := k.Close(); err != nil {
						t.Error(err)
					}
				}
				if want := c.keeps && rank != c.fails; (len(kept) > 0) != want {
					t.Errorf("rank %d is kept: %t, want %t", rank, len(kept) > 0, want)
				}
			}
		})
	}
}
