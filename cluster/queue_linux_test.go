package cluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
)

// TestQueue: runs wait in the order of their submission, also after the coordinator has failed; one that is stopped leaves
// the queue.
func TestQueue(t *testing.T) {
	beside(t)
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	g.join(t, workers(1)...)
	token, err := cluster.ParseToken(g.ask(t, command{Do: "token", Operator: true, Seconds: 3600}).Text)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: g.address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	submit := func(name string, queue bool, steps string) (string, error) {
		return client.Submit(t.Context(), cluster.Submission{Config: []byte(smallRun), Name: name, Queue: queue,
			Sets: keys(t, filepath.Join(t.TempDir(), "out"), []string{"run.steps=" + steps, "run.eval_every=0"})})
	}
	// await waits until the runs have these states and positions, such as "running queued:1".
	await := func(want string) {
		t.Helper()
		got := ""
		for until := time.Now().Add(patience); got != want; time.Sleep(10 * time.Millisecond) {
			all, err := client.Runs(t.Context())
			if err == nil {
				var states []string
				for _, r := range all {
					if !r.Over() {
						states = append(states, r.Name+" "+r.State+strings.Repeat("+", r.Position))
					}
				}
				got = strings.Join(states, ", ")
			}
			if time.Now().After(until) {
				t.Fatalf("the runs are %q, want %q; %v\n%s", got, want, err, g.describe())
			}
		}
	}
	stop := func(name string) {
		t.Helper()
		if _, err := client.Control(t.Context(), name, cluster.Stop); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := submit("a", true, "1000000"); err != nil { // it begins at once
		t.Fatal(err)
	}
	await("a running")
	if _, err := submit("x", false, "5"); !errors.Is(err, troupe.ErrNoWorkers) || !strings.Contains(err.Error(), "use --queue") {
		t.Errorf("without a queue: %v", err)
	}
	for _, name := range []string{"b", "c", "d"} {
		if _, err := submit(name, true, "5"); err != nil {
			t.Fatal(err)
		}
	}
	await("a running, b queued+, c queued++, d queued+++")
	if err := g.lead.kill(); err != nil {
		t.Fatal(err)
	}
	g.startCoordinator(t)
	await("a running, b queued+, c queued++, d queued+++")
	if _, err := submit("x", false, "5"); !errors.Is(err, troupe.ErrNoWorkers) {
		t.Errorf("before the queue: %v", err)
	}
	stop("c")
	await("a running, b queued+, d queued++")
	followed, err := client.Follow(t.Context(), "d", cluster.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop("a")
	for range followed.Events() {
	}
	if res, err := followed.Wait(); err != nil || res.Step != 5 {
		t.Errorf("the last run of the queue: step %d, %v", res.Step, err)
	}
	all, err := client.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Name == "b" && (r.State != "done" || r.Step != 5) {
			t.Errorf("the first run of the queue: %s, step %d", r.State, r.Step)
		}
	}
}
