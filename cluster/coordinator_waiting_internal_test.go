package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestDescribeWorkers: a waiting run says for every worker why the run can't use it.
func TestDescribeWorkers(t *testing.T) {
	cfg := &config.Config{}
	cfg.Run.Name = "mine"
	var heard []beat.Member
	var free []*workerState
	listed := make(map[uuid.UUID]*workerState)
	add := func(name string, isHeard, isListed, isFree bool, a *attempt) {
		m := beat.Member{ID: uuid.New(), Name: name, Offer: &wire.Offer{}}
		if isHeard {
			heard = append(heard, m)
		}
		w := &workerState{Member: m, attempt: a}
		if isListed {
			listed[m.ID] = w
		}
		if isFree {
			free = append(free, w)
		}
	}
	if got := describeWorkers(nil, listed, nil, nil, false); got != "" {
		t.Errorf("of none: %q", got)
	}
	far := []UnreachableWorker{{Name: "far", Error: "the coordinator can't reach it"}}
	add("a", true, true, true, nil)
	add("b", true, true, false, nil)
	add("c", true, true, false, &attempt{cfg: cfg})
	add("ca", true, true, false, nil)
	listed[heard[len(heard)-1].ID].reserved = &attempt{cfg: cfg}
	add("d", true, true, false, &attempt{cfg: cfg, ended: time.Now().Add(-7 * time.Second)})
	add("e", true, false, false, nil)
	add("f", false, true, true, nil)
	common := strings.Join([]string{"",
		`b could not reach a free worker, so the two are kept apart for 60 s`,
		`c has ranks of run "mine"`,
		`ca is reserved for the ranks of a worker that leaves run "mine"`,
		`d is being released by run "mine" (for 7.0 s so far)`,
		`e sends beats, but is not on the list of members yet`,
		`f is on the list of members, but sends no beats`,
		`far is refused: the coordinator can't reach it`,
	}, "; ")
	for gpu, want := range map[bool]string{false: "a is free" + common, true: "a has no GPU" + common} {
		if got := describeWorkers(heard, listed, free, far, gpu); got != want {
			t.Errorf("with GPUs %v:\n%s\nwant\n%s", gpu, got, want)
		}
	}
	for range 5 {
		add("g", true, true, false, &attempt{cfg: cfg})
	}
	want := "a is free" + common + "; and 5 more"
	if got := describeWorkers(heard, listed, free, far, false); got != want {
		t.Errorf("of many:\n%s\nwant\n%s", got, want)
	}

	heard, listed = nil, make(map[uuid.UUID]*workerState)
	keeps := &attempt{cfg: cfg, ended: time.Now(), renewed: true}
	add("h", true, true, false, keeps)
	keeps.shares = []*share{{Member: heard[0], lost: true, why: errLeaves}}
	want = `h keeps the state of its ranks until run "mine" has it elsewhere`
	if got := describeWorkers(heard, listed, nil, nil, false); got != want {
		t.Errorf("of one that keeps state: %q, want %q", got, want)
	}
}
