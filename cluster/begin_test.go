package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/cluster"
)

// submits lets the coordinator's process submit a run, as an operator does.
func (g *group) submits(t *testing.T, s cluster.Submission) (id string, err error) {
	t.Helper()
	token, err := cluster.ParseToken(g.ask(t, command{Do: "token", Seconds: 3600, Operator: true}).Text)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	address := g.address
	g.mu.Unlock()
	client, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return client.Submit(t.Context(), s)
}

// dies lets a coordinator die at a point of a run's start, and starts another one. It returns the place where the events of
// the new one begin.
func (g *group) dies(t *testing.T, point string, s cluster.Submission) (place int) {
	t.Helper()
	g.join(t, workers(2)...)
	if id, err := g.submits(t, s); !errors.Is(err, cluster.ErrLost) {
		t.Fatalf("a coordinator that dies answers %q, %v", id, err)
	}
	<-g.lead.ended
	g.boss.DieAt = ""
	place = g.line.place()
	g.startCoordinator(t)
	return place
}

// TestDeathBesideABeginning: a coordinator that dies at any point of a run's start loses nothing. The restarted coordinator
// starts or resumes the run.
func TestDeathBesideABeginning(t *testing.T) {
	beside(t)
	sets := []string{"pipeline.stages=2"}
	want := filepath.Join(t.TempDir(), "want")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	for _, tt := range []struct {
		point string
		made  bool // the folder has something of the run when the coordinator dies
	}{{cluster.PointSubmitted, false}, {cluster.PointPlaced, false}, {cluster.PointStarted, true}, {cluster.PointBegun, true}} {
		t.Run(tt.point, func(t *testing.T) {
			g := newGroup(t, &group{boss: settings{DieAt: tt.point}})
			out := filepath.Join(t.TempDir(), "out")
			place := g.dies(t, tt.point, cluster.Submission{Config: []byte(smallRun), Sets: keys(t, out, sets), Fresh: true})
			// The other coordinator may have taken the run up since; then there is nothing to see.
			if _, err := os.Stat(filepath.Join(out, "config.toml")); tt.made && err != nil {
				t.Errorf("the folder is not made: %v", err)
			}
			g.await(t, "the run to be taken up", place, patience, func(e event) bool { return e.Kind == "log" && e.Text == "run resumed" })
			g.await(t, "the run to end", place, 3*patience, func(e event) bool { return e.Kind == "log" && e.Text == "run finished" })
			sameRun(t, want, out, 6)
		})
	}
}

// TestDeathBeforeARefusal: a restarted coordinator drops a run that could not have begun, and leaves the output folder that
// was the reason unchanged.
func TestDeathBeforeARefusal(t *testing.T) {
	g := newGroup(t, &group{boss: settings{DieAt: cluster.PointSubmitted}})
	out := filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(out, "mine.txt")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	place := g.dies(t, cluster.PointSubmitted, cluster.Submission{Config: []byte(smallRun), Sets: keys(t, out, []string{"pipeline.stages=2"}),
		Fresh: true})
	dropped := g.await(t, "the run to be dropped", place, patience, func(e event) bool {
		return e.Kind == "log" &&
			e.Attrs["state"] == cluster.PointSubmitted
	})
	t.Log(dropped)
	if text := read(t, mine); text != "mine" {
		t.Errorf("the folder's file is %q", text)
	}
	if err := g.lead.kill(); err != nil {
		t.Fatal(err)
	}
	place = g.line.place()
	g.startCoordinator(t) // which must find nothing to take up
	if id, err := g.submits(t, cluster.Submission{Config: []byte("nonsense"), File: "c.toml"}); err == nil {
		t.Errorf("nonsense is run %s", id)
	}
	if e, err := g.find(place, 0, func(e event) bool { return e.Attrs["state"] != "" }); err == nil {
		t.Errorf("it was taken up again: %v", e)
	}
}
