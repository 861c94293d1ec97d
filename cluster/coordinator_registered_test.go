package cluster_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRegistered: a worker whose program has not registered the same names as the coordinator's is refused, and both sides
// say what is missing where. A worker with the same names computes with them.
func TestRegistered(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Own: []string{"mine", "ours"}}})
	for _, c := range []struct {
		name string
		own  []string
		want []string
		not  string
	}{
		{"nothing", nil, []string{"has not registered schedule mine, schedule ours; the coordinator's has"},
			"; the coordinator's has not"},
		{"other", []string{"ours", "theirs"}, []string{"has not registered schedule mine; the coordinator's has",
			"has registered schedule theirs; the coordinator's has not"}, ""},
		{"more", []string{"mine", "ours", "theirs"}, []string{"has registered schedule theirs; the coordinator's has not"},
			"has not registered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place := g.line.place()
			s := settings{Name: c.name, Join: g.address, Threads: 1, Own: c.own}
			text := refused(t, g, g.program(g.ctx, ""), s, g.token(t, 60))
			e := g.await(t, "the coordinator's word", place, patience, func(e event) bool { return e.Kind == "log" && e.Text == "refused a worker" })
			for _, text := range []string{text, e.Attrs["err"]} {
				contains(t, text, c.want...)
				lacks(t, text, c.not)
			}
		})
	}
	t.Run("another build", func(t *testing.T) {
		s := settings{Name: "other", Join: g.address, Threads: 1}
		text := refused(t, g, exec.CommandContext(g.ctx, copyProgram(t)), s, g.token(t, 60))
		contains(t, text, "has not registered schedule mine", "build mismatch")
	})
	place := g.line.place()
	s := g.workerSettings("same")
	s.Own = []string{"ours", "mine"}
	g.start(t, "worker", s, g.token(t, 60))
	g.await(t, "the worker to join", place, patience, joined("same"))
	out := filepath.Join(t.TempDir(), "out")
	if busy := g.train(t, command{Config: smallRun, Sets: keys(t, out, []string{"pipeline.stages=2", "pipeline.schedule=mine"}),
		Workers: 1}); busy != 1 {
		t.Errorf("%d workers had ranks, want 1", busy)
	}
}
