package life

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// lostHosts have workers that are lost whenever they are given ranks, as often as there are some.
type lostHosts struct {
	workers  int
	waits    []time.Duration
	released int
}

func (h *lostHosts) Choose(_ context.Context, _ *config.Config, wait time.Duration) (plan.Workers, error) {
	h.waits = append(h.waits, wait)
	if len(h.waits) > h.workers {
		return nil, plan.ErrNoRoom
	}
	return lostWorker{h}, nil
}

type lostWorker struct{ h *lostHosts }

func (lostWorker) Path() string    { return "go" }
func (lostWorker) Devices() string { return "cpu" }
func (lostWorker) Threads() int    { return 1 }
func (lostWorker) Assign(context.Context, plan.Assignment) (plan.Ranks, error) {
	return plan.Ranks{}, &plan.LostError{Worker: "a", Ranks: []int{0}, Err: errors.New("messages to it are not acknowledged")}
}
func (lostWorker) Watch(*actors.Run) {}
func (w lostWorker) Release()        { w.h.released++ }

// TestLostBeforeBegin: a run that loses a worker before it has begun tries others, and waits for them as one does that has
// begun. Where there are none, or too many are lost, whoever has asked for the run may try again, and is told why.
func TestLostBeforeBegin(t *testing.T) {
	for _, test := range []struct {
		name          string
		workers, most int
		tries         int
	}{
		{"one worker", 1, 3, 2},
		{"two workers", 2, 3, 3},
		{"many workers", 100, 3, 4},
		{"no other try", 100, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "cluster.lease_s=7")
			cfg.Cluster.MaxRestarts = test.most
			h := &lostHosts{workers: test.workers}
			_, err := troupe.Start(t.Context(), cfg, troupe.Options{Hosts: h})
			if !errors.Is(err, troupe.ErrNoWorkers) || !strings.Contains(err.Error(),
				"worker a with rank 0 failed: messages to it are not acknowledged") {
				t.Errorf("it ends with %v", err)
			}
			var setup *troupe.SetupError
			if errors.As(err, &setup) {
				t.Error("it is an error of the configuration")
			}
			if len(h.waits) != test.tries || h.released != min(test.tries, test.workers) {
				t.Errorf("%d tries, %d workers given back; want %d tries", len(h.waits), h.released, test.tries)
			}
			for i, wait := range h.waits {
				if want := min(i, 1) * 7; wait != time.Duration(want)*time.Second {
					t.Errorf("try %d waits for %v, want %d s", i+1, wait, want)
				}
			}
		})
	}
}
