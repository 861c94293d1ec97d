package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestGridHosts uses two loopback addresses as hosts. Each tensor group stays on one host, even if the order numbers its ranks
// far apart, and a host that is too small gets none. If no host has enough cores, the run says so. The figures are those of one
// process.
func TestGridHosts(t *testing.T) {
	hosts := map[string]string{"a": "127.0.0.2:0", "b": "127.0.0.3:0", "c": "127.0.0.4:0"}
	for _, c := range []struct {
		name    string
		threads map[string]int // of the workers that there are
		sets    []string
		busy    int
		warned  string
	}{
		{"room on two of three", map[string]int{"a": 2, "b": 1, "c": 2}, []string{"parallel.tensor=2", "pipeline.stages=2",
			"parallel.order=pp-tp"}, 2, "b got no ranks, because each tensor group stays on one host"},
		{"no room", map[string]int{"a": 1, "b": 1}, []string{"parallel.tensor=2"}, 2, "1 of 1 tensor groups are on more than one host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := filepath.Join(t.TempDir(), "want")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, families["gpt2, tied"], c.sets)})
			g := newGroup(t, &group{adjust: func(s *settings) { s.Listen, s.Threads = hosts[s.Name], c.threads[s.Name] }})
			for name := range c.threads {
				g.join(t, name)
			}
			out, place := filepath.Join(t.TempDir(), "out"), g.line.place()
			busy := g.train(t, command{Config: smallRun, Sets: keys(t, out, families["gpt2, tied"], c.sets), Workers: len(c.threads)})
			sameRun(t, want, out, 6)
			warned := false
			events, _ := g.line.from(place)
			for _, e := range events {
				warned = warned || e.Kind == "warning" && strings.Contains(e.Text, c.warned)
			}
			if busy != c.busy || !warned {
				t.Errorf("%d workers had ranks, want %d; warned: %v, want %q\n%s", busy, c.busy, warned, c.warned, g.describe())
			}
		})
	}
}
