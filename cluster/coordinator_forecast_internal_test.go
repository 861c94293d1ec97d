package cluster

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestEachOf: answers are in the workers' order, whichever comes first, and each error names its worker.
func TestEachOf(t *testing.T) {
	workers := []*share{{Member: beat.Member{Name: "a"}}, {Member: beat.Member{Name: "b"}}, {Member: beat.Member{Name: "c"}}}
	last := make(chan struct{})
	got, err := eachOf(workers, func(i int) (string, error) {
		if i == 0 {
			<-last
		}
		if i == 2 {
			close(last)
		}
		return "from " + workers[i].Name, nil
	})
	if err != nil || len(got) != 3 || got[0] != "from a" || got[1] != "from b" || got[2] != "from c" {
		t.Errorf("%q, %v", got, err)
	}
	lost := errors.New("lost")
	_, err = eachOf(workers, func(i int) (string, error) { return "", []error{lost, nil, lost}[i] })
	if !errors.Is(err, lost) || err.Error() != "worker a: lost\nworker c: lost" {
		t.Errorf("error %v", err)
	}
}

// TestCarriedByStages: a stage waits for the rank whose messages cost the most, and messages cost no compute time on a GPU.
func TestCarriedByStages(t *testing.T) {
	g, err := grid.New(grid.Sizes{Pipeline: 2, Data: 2})
	if err != nil {
		t.Fatal(err)
	}
	carried := map[string]float64{"idle": 0, "slow": 0.5, "slower": 0.75, "gpu": 0.9}
	for _, c := range []struct {
		stages [2][2]string // the workers of each stage's replicas
		ns     [2]float64
	}{
		{[2][2]string{{"slow", "slower"}, {"idle", "slow"}}, [2]float64{0.75, 0.5}},
		{[2][2]string{{"idle", "gpu"}, {"gpu", "gpu"}}, [2]float64{0, 0}},
		{[2][2]string{{"gpu", "slow"}, {"idle", "idle"}}, [2]float64{0.5, 0}},
	} {
		of := make([]*share, 4)
		for r := range of {
			at := g.Coordinates(r)
			of[r] = &share{Member: beat.Member{Name: c.stages[at[grid.Pipeline]][at[grid.Data]]}}
			if of[r].Name == "gpu" {
				of[r].devices = []*wire.OfferedDevice{{}}
			}
		}
		d := new(attempt).devices(g, of, measurements{carried: carried})
		for stage, want := range c.ns {
			if got := d.CarryNS(stage); got != want {
				t.Errorf("%v: stage %d loses %g ns a byte, want %g", c.stages, stage, got, want)
			}
		}
	}
}
