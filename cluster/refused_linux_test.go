package cluster_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
)

// TestRefusedShadows: when a worker starts, its host has less free memory than when it joined, so that its ranks fit, but no shadow beside
// them. With cluster.shadow = "auto" the run says so and uses none, also if a worker gets its first assignment only after another one has
// refused; with "on" it cannot begin.
func TestRefusedShadows(t *testing.T) {
	sets := []string{"run.steps=2", "run.checkpoint_every=0", "run.eval_every=0", "batch.sequences=192", "pipeline.stages=2",
		"cluster.max_restarts=0"}
	cfg, err := config.Parse("test.toml", []byte(smallRun), keys(t, filepath.Join(t.TempDir(), "out"), sets), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	need, err1 := p.RankBytes(plan.Shadows{})
	shadows, err2 := p.ShadowBytes()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	g := newGroup(t, &group{adjust: func(s *settings) { s.FreeNow = max(need[0], need[1]) + min(shadows[0], shadows[1])/2 }})
	g.join(t, workers(2)...)
	for _, mode := range []string{plan.ShadowAuto, plan.ShadowOn} {
		out, place := filepath.Join(t.TempDir(), "out"), g.line.place()
		signal := func(s syscall.Signal) {
			if err := g.workers["worker-1"].cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		if mode == plan.ShadowAuto {
			signal(syscall.SIGSTOP)
		}
		id, err := g.send(command{Do: "run", Config: smallRun, Sets: keys(t, out, sets, []string{"cluster.shadow=" + mode}), Workers: 2,
			Seconds: patience.Seconds()})
		if err != nil {
			t.Fatal(err)
		}
		if mode == plan.ShadowAuto {
			_, err := g.find(place, patience, func(e event) bool { return e.Kind == "log" && e.Text == "the ranks have no shadows" })
			if signal(syscall.SIGCONT); err != nil {
				t.Fatalf("worker-0 does not refuse: %v\n%s", err, g.describe())
			}
		}
		e := g.await(t, "the run to begin", place, patience, func(e event) bool { return e.Kind == "reply" && e.ID == id })
		if mode == plan.ShadowOn {
			if !strings.Contains(e.Error, "not enough memory") || !strings.Contains(e.Error, "shadows of other ranks") {
				t.Errorf("with %s: %v", mode, e)
			}
			continue
		}
		if e.Error != "" {
			t.Fatalf("with %s: %v\n%s", mode, e, g.describe())
		}
		if end := g.await(t, "the run to end", place, patience, ended); e.Error != "" || end.Error != "" || end.Step != 2 {
			t.Fatalf("with %s: %v, %v\n%s", mode, e, end, g.describe())
		}
		events, _ := g.line.from(place)
		warned := 0
		for _, e := range events {
			if e.Kind == "warning" && strings.Contains(e.Text, "the ranks have no shadows: worker worker-") {
				warned++
			}
		}
		if warned != 1 {
			t.Errorf("it says %d times that the ranks have no shadows\n%s", warned, g.describe())
		}
	}
}
