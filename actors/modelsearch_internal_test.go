package actors

import (
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// modelFound is what a search has found.
type modelFound struct {
	states, moves int
	ends          map[string]int
	wrong         []string
}

var modelSeed = maphash.MakeSeed()

// search visits every state, breadth first. It remembers states by their hashes.
func (m *modelRules) search() (f modelFound) {
	f.ends = make(map[string]int)
	run := &modelRun{modelRules: m, wrong: func(s *modelState, format string, args ...any) {
		if len(f.wrong) < 3 {
			f.wrong = append(f.wrong, fmt.Sprintf(format, args...)+fmt.Sprintf(" (deaths %d, decided %d)", s.deaths, s.decided))
		}
	}}
	ids := make(map[uint64]int32)
	var edges [][]int32
	var queue []modelState
	visit := func(s modelState) int32 {
		key := maphash.Comparable(modelSeed, s)
		id, known := ids[key]
		if !known {
			id = int32(len(ids))
			ids[key] = id
			queue = append(queue, s)
		}
		return id
	}
	visit(run.first())
	for len(queue) > 0 && len(f.wrong) == 0 {
		level := queue
		queue = nil
		for _, s := range level {
			var to []int32
			run.next(&s, func(t modelState) { to = append(to, visit(t)) })
			edges, f.moves = append(edges, to), f.moves+len(to)
			switch {
			case s.phase == modelFinished:
				f.ends[fmt.Sprintf("%d deaths, finished", s.deaths)]++
			case s.phase == modelRestarts:
				f.ends[fmt.Sprintf("%d deaths, restart: %s", s.deaths, modelWhys[s.why])]++
			case len(to) == 0:
				run.wrong(&s, "nothing follows: phase %d, %+v", s.phase, s)
			}
		}
	}
	if f.states = len(ids); len(f.wrong) == 0 && cyclic(edges) {
		f.wrong = append(f.wrong, "some paths do not end")
	}
	return f
}

// cyclic reports whether a graph has a cycle.
func cyclic(edges [][]int32) bool {
	into := make([]int32, len(edges))
	for _, all := range edges {
		for _, to := range all {
			into[to]++
		}
	}
	var free []int32
	for id, n := range into {
		if n == 0 {
			free = append(free, int32(id))
		}
	}
	gone := 0
	for len(free) > 0 {
		from := free[len(free)-1]
		free = free[:len(free)-1]
		gone++
		for _, to := range edges[from] {
			if into[to]--; into[to] == 0 {
				free = append(free, to)
			}
		}
	}
	return gone < len(edges)
}

// describe lists how the paths end.
func (f modelFound) describe() string {
	text := fmt.Sprintf("%d states, %d moves", f.states, f.moves)
	for _, end := range slices.Sorted(maps.Keys(f.ends)) {
		text += fmt.Sprintf("; %s (%d)", end, f.ends[end])
	}
	return text
}

// TestModel searches every interleaving of a step with two deaths. No decided step is lost or made twice, no rank continues with other
// weights than those of the last decided step, every path ends, and a single death never ends in a restart.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		name string
		modelRules
		most uint8 // deaths in make test; 0: it is left out
	}{
		{"replicas", modelRules{copies: true, steps: 1, deaths: 2}, 2},
		{"replicas, skipped", modelRules{copies: true, steps: 1, skip: 1, deaths: 2}, 2},
		{"replicas, ahead", modelRules{copies: true, ahead: true, steps: 2, deaths: 2}, 1},
		{"replicas, ahead, missed", modelRules{copies: true, ahead: true, steps: 2, missed: 1, deaths: 2}, 1},
		{"replicas, ahead, skipped", modelRules{copies: true, ahead: true, steps: 2, skip: 1, deaths: 2}, 0},
		{"shadows", modelRules{steps: 1, deaths: 2}, 2},
		{"shadows, skipped", modelRules{steps: 1, skip: 1, deaths: 2}, 2},
		{"shadows, ahead", modelRules{ahead: true, steps: 2, deaths: 2}, 1},
		{"shadows, ahead, missed", modelRules{ahead: true, steps: 2, missed: 1, deaths: 2}, 0},
		{"shadows, ahead, skipped", modelRules{ahead: true, steps: 2, skip: 1, deaths: 2}, 0},
	} {
		if os.Getenv("TROUPE_LONG_TESTS") == "" {
			if c.deaths = c.most; c.most == 0 {
				continue
			}
		}
		t.Run(c.name, func(t *testing.T) {
			f := c.search()
			t.Log(f.describe())
			for _, w := range f.wrong {
				t.Error(w)
			}
			for end := range f.ends {
				if strings.Contains(end, "restart") && (!strings.HasPrefix(end, "2 deaths") || strings.Contains(end, "nothing was kept")) {
					t.Errorf("some paths end so: %s", end)
				}
			}
			if f.ends["1 deaths, finished"] == 0 {
				t.Error("no path with a death finishes the run")
			}
		})
	}
}

// TestModelFinds: the search finds mistakes in the protocol.
func TestModelFinds(t *testing.T) {
	for _, c := range []struct{ mistake, found string }{
		{"decided without shadows", "had reached its shadow"},
		{"pending steps are dropped", "updates"},
		{"a decided step is lost", "cannot continue"},
		{"an assignment does not wait", "1 deaths, restart: nothing was kept"},
		{"loading ranks are thought to be kept", "2 deaths, restart: nothing was kept"},
	} {
		rules := modelRules{steps: 1, deaths: 1, mistake: c.mistake}
		if strings.HasPrefix(c.found, "2") {
			rules.deaths = 2
		}
		f := rules.search()
		if text := strings.Join(f.wrong, "\n") + "\n" + f.describe(); !strings.Contains(text, c.found) {
			t.Errorf("%s: %s", c.mistake, text)
		}
	}
}
